"""The page of a calibration: its panels, findings and tables; of a stored run also how it was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

from xstage_tune.base.number_format import byte_count, count, percent, rate
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.launches.device import LaunchInfo
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.report.calibration_figure import calibration_figure
from xstage_tune.report.calibration_tables import platform_tables
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.tables import Column, Columns, TableData, number, pairs, table
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run


def render_html(result: CalibrationResult) -> str:
    """The page of ``result``: the four panels, findings, and every table."""
    figure = calibration_figure(result)
    return render_page(figure.title, calibration_blocks(result))


def calibration_blocks(result: CalibrationResult) -> tuple[Block, ...]:
    """The parts of that page."""
    return (
        Block(figure=calibration_figure(result)),
        Block(findings=result.findings, tables=platform_tables(result.platform)),
    )


def render_run(run: Run, result: CalibrationResult, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``, whose launches were fitted to ``result``."""
    blocks = (*calibration_blocks(result), Block(tables=(run_table(run, launches), launches_table(launches))))
    return render_page(f"Calibration of {result.platform.name}", blocks, _lead(run, result.platform))


def _lead(run: Run, platform: PlatformProfile) -> tuple[str, ...]:
    """What the run found, in words."""
    drain, gpu = platform.drain, platform.gpu
    of_copy = ""
    if drain.copy_engine_fraction:
        of_copy = f", {percent(100 * drain.copy_engine_fraction, 1)} of the copy engine's rate"
    held = ", ".join(
        f"{byte_count(point.bytes)} ({point.flavour})"
        for point in platform.capacity
        if point.producers == gpu.sm_count and point.knee_reached
    )
    capacity = f" {gpu.sm_count} producers may have Q = {held} outstanding." if held else ""
    found = (
        f"Remote stores of the {gpu.name} on path {platform.path} drain at R = "
        f"{rate(drain.bytes_per_s, drain.ci95)}{of_copy}.{capacity}"
    )
    errors = platform.validation
    if errors is None:
        return (found,)
    checked = (
        f"On {errors.points} points that the fit never saw, the law predicts the period within "
        f"{percent(errors.period_median_pct)} in the median and {percent(errors.period_p95_pct)} at p95. "
        f"Run {run.id}."
    )
    return (found, checked)


def run_sentence(run: Run) -> str:
    """Which run it was, and how it ended where it did not finish."""
    if run.status == "finished":
        return f"Run {run.id}."
    return f"Run {run.id}. It is {run.status}{f': {run.error}' if run.error else ''}."


def run_table(run: Run, launches: Sequence[StoredLaunch]) -> TableData:
    """How a run was made, and what its owner checked."""
    checked = sum(launch.verification.checked_bytes for launch in launches)
    mismatched = sum(launch.verification.mismatched_bytes for launch in launches)
    verified = f"{byte_count(checked)} checked by the owner, {byte_count(mismatched)} wrong"
    rows = (
        ("run", f"{run.id}, {run.status}"),
        ("began, ended", f"{run.started_at}, {run.finished_at or 'not on record'}"),
        ("command", " ".join(run.argv)),
        ("tool", " ".join(part for part in (run.tool_version, run.git_state) if part)),
        ("host", f"{run.host}, {run.environment.system}"),
        ("verified", verified),
    )
    return pairs("Run", rows)


def launches_table(launches: Sequence[StoredLaunch]) -> TableData:
    """How many launches of each kernel, with what the compiler and the clocks said of them."""
    kinds: dict[tuple[str, ...], list[LaunchInfo]] = defaultdict(list)
    for launch in launches:
        info = launch.info
        key = (launch.mode, launch.path, launch.flavour, info.kernel)
        kinds[*key, str(info.registers), f"{info.spill_bytes} B"].append(info)
    columns: Columns[tuple[tuple[str, ...], list[LaunchInfo]]] = (
        Column("mode", lambda kind: kind[0][0]),
        Column("path", lambda kind: kind[0][1]),
        Column("stores", lambda kind: kind[0][2]),
        Column("kernel", lambda kind: kind[0][3]),
        number("registers", lambda kind: kind[0][4]),
        number("spills", lambda kind: kind[0][5]),
        number("launches", lambda kind: len(kind[1]), count),
        number("throttled", lambda kind: sum(info.throttled for info in kind[1]), count),
    )
    return table("Launches", columns, sorted(kinds.items(), key=itemgetter(0)))
