"""A calibration and its platform profile as tables: every number with its interval, unit and source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.text import Text

from xstage_tune.base.number_format import (
    ABSENT,
    byte_count,
    duration,
    factor,
    id_ranges,
    percent,
    plain,
    rate,
)
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.platforms.schema import Arbitration, CapacityLaw, PlatformProfile
from xstage_tune.report.tables import Column, TableData, render_table

_PRODUCERS = Column("K", "right")
_MOST_SOURCE_NOTES = 3


def platform_report(platform: PlatformProfile) -> RenderableType:
    """All tables of a platform profile."""
    parts: list[RenderableType] = []
    for table in platform_tables(platform):
        parts += [render_table(table), Text()]
    return Group(*parts)


def tile_times_table(platform: PlatformProfile) -> TableData | None:
    """Attention tiles of the compute section; None where a profile has none."""
    tiles = platform.compute.attention if platform.compute else ()
    if not tiles:
        return None
    rows = tuple(
        (
            f"{tile.block_m}x{tile.block_n}",
            str(tile.head_dim),
            duration(tile.kv_tile_ns),
            duration(tile.fixed_ns),
            duration(tile.staging_ns),
            *(
                (
                    duration(tile.split.kv_tile_ns),
                    duration(tile.split.exchange_ns),
                    duration(tile.split.staging_ns),
                )
                if tile.split
                else (ABSENT, ABSENT, ABSENT)
            ),
        )
        for tile in tiles
    )
    figures = ("KV tile", "fixed", "staging", "of two CTAs: KV tile", "exchange", "staging")
    return _sourced(
        TableData(
            "Attention tiles: time of a KV tile, of a Q-loop beyond those, and of staging its output",
            (Column("tile"), Column("head dim", "right"), *(Column(figure, "right") for figure in figures)),
            rows,
            sections=_sections([f"{tile.block_m} {tile.head_dim}" for tile in tiles]),
        ),
        [tile.source for tile in tiles],
    )


def platform_tables(platform: PlatformProfile) -> tuple[TableData, ...]:
    """The tables of a platform profile, leaving out those it has no data for."""
    tables = (
        _headline(platform),
        _issue(platform),
        _capacity(platform),
        _capacity_laws(platform),
        _arbitration(platform.arbitration, platform.gpu.sm_count) if platform.arbitration else None,
        _validation(platform),
        _provenance(platform),
    )
    return tuple(table for table in tables if table and table.rows)


def _headline(platform: PlatformProfile) -> TableData:
    drain, gpu = platform.drain, platform.gpu
    rows = [
        ("GPU", f"{gpu.name}, {gpu.architecture}, {gpu.sm_count} SMs at {plain(gpu.sm_clock_mhz, 0)} MHz"),
        ("path", platform.path),
        ("drain rate R", rate(drain.bytes_per_s, drain.ci95)),
    ]
    if drain.copy_engine_bytes_per_s and drain.copy_engine_fraction:
        share = percent(100 * drain.copy_engine_fraction, 1)
        rows.append(("copy engine", f"{rate(drain.copy_engine_bytes_per_s)}; R is {share} of it"))
    rows.append(("source of R", drain.source or "not stated"))
    if control := platform.local_control:
        rows.append((
            "local control",
            f"{duration(control.issue_ns)} at K = {control.producers}, B = {byte_count(control.burst_bytes)};"
            f" varies by {percent(100 * control.gap_spread)} over the gaps",
        ))  # fmt: skip
    if platform.compute is None:
        rows.append(("compute", f"not known of {gpu.name}: audit and search need it"))
    elif unmeasured := unmeasured_compute(platform):
        rows.append(("compute", unmeasured.removeprefix("compute: ")))
    notes = (platform.description,) if platform.description else ()
    return TableData(f"Platform {platform.name}", (Column("quantity"), Column("value")), tuple(rows), notes)


def _issue(platform: PlatformProfile) -> TableData:
    points = sorted(platform.issue, key=lambda point: (point.flavour, point.producers, point.burst_bytes))
    return _sourced(
        TableData(
            "Issue time without backpressure, T0",
            (Column("stores"), _PRODUCERS, Column("B", "right"), Column("T0 [95% interval]", "right")),
            tuple(
                (
                    point.flavour,
                    str(point.producers),
                    byte_count(point.burst_bytes),
                    duration(point.ns, point.ci95),
                )
                for point in points
            ),
            sections=_sections([point.flavour for point in points]),
        ),
        [point.source for point in points],
    )


def _capacity(platform: PlatformProfile) -> TableData:
    points = sorted(platform.capacity, key=lambda point: (point.flavour, point.producers))
    return _sourced(
        TableData(
            "Outstanding capacity, Q",
            (
                Column("stores"),
                _PRODUCERS,
                Column("Q [95% interval]", "right"),
                Column("Q/K", "right"),
                Column("knee"),
            ),
            tuple(
                (
                    point.flavour,
                    str(point.producers),
                    byte_count(point.bytes, point.ci95),
                    byte_count(point.bytes / point.producers),
                    "reached" if point.knee_reached else "not reached, lower bound",
                )
                for point in points
            ),
            sections=_sections([point.flavour for point in points]),
        ),
        [point.source for point in points],
    )


def _capacity_laws(platform: PlatformProfile) -> TableData:
    return TableData(
        "Law of Q against K",
        (Column("stores"), Column("law"), Column("fit"), Column("rms error", "right")),
        tuple(
            (law.flavour, law.law, _law_text(law), percent(100 * law.rms_relative_error))
            for law in platform.capacity_law
        ),
    )


def _law_text(law: CapacityLaw) -> str:
    scale = byte_count(law.scale_bytes)
    match law.law:
        case "constant":
            return f"Q = {scale}"
        case "linear":
            return f"Q = {scale} * K"
        case "power":
            return f"Q = {scale} * K^{_parameter(law.exponent)}"
        case "saturating":
            return f"Q = {scale} * (1 - exp(-K/{_parameter(law.producers_scale)}))"


def _parameter(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4g}"


def _arbitration(arbitration: Arbitration, sm_count: int) -> TableData:
    """Ports of SMs; service is an SM's rate over the mean of all SMs behind the ports."""
    members = sum(len(group.sm_ids) for group in arbitration.groups)
    notes = [f"per-SM shares repeat between runs with correlation {arbitration.repeat_correlation:.4f}"]
    if arbitration.max_relative_error is not None:
        deviation = percent(100 * arbitration.max_relative_error)
        notes.append(f"largest deviation of an SM from an even share of its port: {deviation}")
    if arbitration.predictions:
        errors = ", ".join(
            f"K = {seen.producers}: {percent(100 * seen.median_relative_error, 1)}, "
            f"at most {percent(100 * seen.max_relative_error, 1)}"
            for seen in arbitration.predictions
        )
        notes.append(f"error of the shares it predicts for SMs that the hardware chose, median: {errors}")
    if members < sm_count:
        notes.append(f"{sm_count - members} of {sm_count} SMs are in no group: none ran a producer")
    return TableData(
        "Arbitration: how R is divided among saturating SMs",
        (
            Column("port", "right"),
            Column("branch", "right"),
            Column("SMs", "right"),
            Column("share of R", "right"),
            Column("service per SM", "right"),
            Column("SM ids"),
        ),
        tuple(
            (
                str(number),
                str(group.branch),
                str(len(group.sm_ids)),
                percent(100 * group.share),
                factor(group.share * members / len(group.sm_ids)) if group.sm_ids else ABSENT,
                id_ranges(group.sm_ids, ", "),
            )
            for number, group in enumerate(arbitration.groups, start=1)
        ),
        (*notes, *_sources([arbitration.source])),
    )


def _validation(platform: PlatformProfile) -> TableData | None:
    errors = platform.validation
    if errors is None:
        return None
    notes = [f"relative errors on {errors.points} points that the fit never saw"]
    if corner := platform.corner:
        notes.append(
            f"soft corner near G*: a width of {percent(100 * corner.width_fraction)} of V/R takes the "
            f"held-out median error from {percent(corner.plain_median_pct)} "
            f"to {percent(corner.soft_median_pct)}"
        )
    return TableData(
        "Validation",
        (Column("predicted"), Column("median error", "right"), Column("p95 error", "right")),
        tuple(
            (what, percent(median_pct), percent(p95_pct))
            for what, median_pct, p95_pct in (
                ("period, gap sweep", errors.period_median_pct, errors.period_p95_pct),
                ("T_iss, gap sweep", errors.issue_median_pct, errors.issue_p95_pct),
                ("T_iss, isolated bursts", errors.isolated_median_pct, errors.isolated_p95_pct),
            )
        ),
        tuple(notes),
    )


def _provenance(platform: PlatformProfile) -> TableData:
    origin = platform.provenance
    rows = (
        ("run", origin.run_id),
        ("made", f"{origin.created_at} by xstage-tune {origin.tool_version}"),
        ("command", " ".join(origin.argv)),
        ("host", origin.host),
        ("GPU id", origin.gpu_uuid),
        ("driver, CUDA", ", ".join(part for part in (origin.driver, origin.cuda) if part)),
        ("kernels", origin.kernel_sha256),
        ("seed", "" if origin.seed is None else str(origin.seed)),
    )
    return TableData("Provenance", (Column("what"), Column("value")), tuple(row for row in rows if row[1]))


def _sourced(table: TableData, sources: Sequence[str]) -> TableData:
    """``table`` with the source of each row: as notes where they are few, else in a column of their own."""
    notes = _sources(sources)
    if len(notes) <= _MOST_SOURCE_NOTES:
        return replace(table, notes=(*table.notes, *notes))
    rows = tuple((*row, source) for row, source in zip(table.rows, sources, strict=True))
    return replace(table, columns=(*table.columns, Column("source")), rows=rows)


def _sources(sources: Iterable[str]) -> tuple[str, ...]:
    """One note for each distinct source, in order of appearance; none for a number without one."""
    return tuple(f"source: {source}" for source in dict.fromkeys(sources) if source)


def _sections(keys: Sequence[str]) -> frozenset[int]:
    """The row indices at which the key changes."""
    return frozenset(
        index for index, (before, after) in enumerate(pairwise(keys), start=1) if before != after
    )
