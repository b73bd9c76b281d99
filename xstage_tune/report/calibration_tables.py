"""A calibration and its platform profile as tables: every number with its interval, unit and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rich.console import RenderableType

from xstage_tune.base.number_format import (
    ABSENT,
    byte_count,
    counted,
    duration,
    factor,
    id_ranges,
    percent,
    plain,
    rate,
)
from xstage_tune.estimates.bursts import saturating_producers
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.platforms.schema import (
    Arbitration,
    ArbitrationGroup,
    AttentionTile,
    CapacityLaw,
    CapacityPoint,
    IssuePoint,
    PlatformProfile,
)
from xstage_tune.report.tables import Column, Columns, TableData, number, pairs, render_report, table

Sourced = TypeVar("Sourced", bound=AttentionTile | CapacityPoint | IssuePoint)

_MOST_SOURCE_NOTES = 3


def platform_report(platform: PlatformProfile) -> RenderableType:
    """All tables of a platform profile."""
    return render_report(platform_tables(platform))


def tile_times_table(platform: PlatformProfile) -> TableData | None:
    """Attention tiles of the compute section; None where a profile has none."""
    tiles = platform.compute.attention if platform.compute else ()
    if not tiles:
        return None
    columns: Columns[AttentionTile] = (
        Column("tile", lambda tile: f"{tile.block_m}x{tile.block_n}"),
        number("head dim", lambda tile: tile.head_dim),
        number("KV tile", lambda tile: tile.kv_tile_ns, duration),
        number("fixed", lambda tile: tile.fixed_ns, duration),
        number("staging", lambda tile: tile.staging_ns, duration),
        number("of two CTAs: KV tile", lambda tile: tile.split and tile.split.kv_tile_ns, duration),
        number("exchange", lambda tile: tile.split and tile.split.exchange_ns, duration),
        number("staging", lambda tile: tile.split and tile.split.staging_ns, duration),
    )
    title = "Attention tiles: time of a KV tile, of a Q-loop beyond those, and of staging its output"
    return _sourced(title, columns, tiles, lambda tile: (tile.block_m, tile.head_dim))


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
    if platform.issue:
        rows.append(("saturated by", _saturation(platform)))
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
    return pairs(f"Platform {platform.name}", rows, ("quantity", "value"), notes=notes)


def _saturation(platform: PlatformProfile) -> str:
    """How many SMs saturate the path, with the smallest and the largest burst that was measured."""
    found = []
    for flavour in sorted({point.flavour for point in platform.issue}):
        sizes = [point.burst_bytes for point in platform.issue if point.flavour == flavour]
        for size in sorted({min(sizes), max(sizes)}):
            fewest = saturating_producers(platform, flavour, size)
            sms = counted(int(fewest.value), "SM") if fewest else f"not even {platform.gpu.sm_count} SMs"
            found.append(f"{sms} with bursts of {byte_count(size)}, {flavour}")
    return "; ".join(found)


def _issue(platform: PlatformProfile) -> TableData:
    points = sorted(platform.issue, key=lambda point: (point.flavour, point.producers, point.burst_bytes))
    columns: Columns[IssuePoint] = (
        Column("stores", lambda point: point.flavour),
        number("K", lambda point: point.producers),
        number("B", lambda point: point.burst_bytes, byte_count),
        number("T0 [95% interval]", lambda point: duration(point.ns, point.ci95)),
    )
    title = "Issue time without backpressure, T0"
    return _sourced(title, columns, points, lambda point: point.flavour)


def _capacity(platform: PlatformProfile) -> TableData:
    points = sorted(platform.capacity, key=lambda point: (point.flavour, point.producers))
    columns: Columns[CapacityPoint] = (
        Column("stores", lambda point: point.flavour),
        number("K", lambda point: point.producers),
        number("Q [95% interval]", lambda point: byte_count(point.bytes, point.ci95)),
        number("Q/K", lambda point: point.bytes / point.producers, byte_count),
        Column("knee", lambda point: "reached" if point.knee_reached else "not reached, lower bound"),
    )
    return _sourced("Outstanding capacity, Q", columns, points, lambda point: point.flavour)


def _capacity_laws(platform: PlatformProfile) -> TableData:
    columns: Columns[CapacityLaw] = (
        Column("stores", lambda law: law.flavour),
        Column("law", lambda law: law.law),
        Column("fit", _law_text),
        number("rms error", lambda law: 100 * law.rms_relative_error, percent),
    )
    return table("Law of Q against K", columns, platform.capacity_law)


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

    def service(group: ArbitrationGroup) -> float | None:
        return group.share * members / len(group.sm_ids) if group.sm_ids else None

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
    columns: Columns[tuple[int, ArbitrationGroup]] = (
        number("port", lambda numbered: numbered[0]),
        number("branch", lambda numbered: numbered[1].branch),
        number("SMs", lambda numbered: len(numbered[1].sm_ids)),
        number("share of R", lambda numbered: 100 * numbered[1].share, percent),
        number("service per SM", lambda numbered: service(numbered[1]), factor),
        Column("SM ids", lambda numbered: id_ranges(numbered[1].sm_ids, ", ")),
    )
    return table(
        "Arbitration: how R is divided among saturating SMs",
        columns,
        enumerate(arbitration.groups, start=1),
        notes=(*notes, *_sources([arbitration.source])),
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
    columns: Columns[tuple[str, float, float]] = (
        Column("predicted", lambda row: row[0]),
        number("median error", lambda row: row[1], percent),
        number("p95 error", lambda row: row[2], percent),
    )
    rows = (
        ("period, gap sweep", errors.period_median_pct, errors.period_p95_pct),
        ("T_iss, gap sweep", errors.issue_median_pct, errors.issue_p95_pct),
        ("T_iss, isolated bursts", errors.isolated_median_pct, errors.isolated_p95_pct),
    )
    return table("Validation", columns, rows, notes=notes)


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
    return pairs("Provenance", (row for row in rows if row[1]))


def _sourced(
    title: str,
    columns: Columns[Sourced],
    rows: Sequence[Sourced],
    section_of: Callable[[Sourced], object],
) -> TableData:
    """A table with the source of each row: as notes where they are few, else in a column of their own."""
    notes = _sources(row.source for row in rows)
    if len(notes) > _MOST_SOURCE_NOTES:
        source: Column[Sourced] = Column("source", lambda row: row.source)
        return table(title, [*columns, source], rows, section_of=section_of)
    return table(title, columns, rows, notes=notes, section_of=section_of)


def _sources(sources: Iterable[str]) -> tuple[str, ...]:
    """One note for each distinct source, in order of appearance; none for a number without one."""
    return tuple(f"source: {source}" for source in dict.fromkeys(sources) if source)
