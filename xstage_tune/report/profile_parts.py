"""What the pages and tables of all profiles share: the lead, spans' distributions, intervals, and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xstage_tune.base.number_format import count, difference, duration
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.experiments.profiling.result import ProfiledResult
from xstage_tune.families.profiled import Distribution
from xstage_tune.platforms.loader import is_current
from xstage_tune.report.calibration_page import run_sentence
from xstage_tune.report.sentences import other_gpu_note, workload_sentence
from xstage_tune.report.tables import Column, Columns, TableData, number, table
from xstage_tune.store.models import Run

_TERA = 1e12
#: Of what, which, and its spans.
SpanRow = tuple[str, str, Distribution]


def profile_lead(run: Run, result: ProfiledResult, config: str, answers: Iterable[str]) -> tuple[str, ...]:
    """What a page begins with: what was profiled, and what was found.

    Args:
        config: in words.
        answers: sentences; an empty one says nothing.
    """
    what = (
        f"{workload_sentence(result.request.workload)} {config} on {result.device_name}, path "
        f"{result.request.path}."
    )
    return what, " ".join(part for part in (run_sentence(run), *answers) if part)


def span_table(rows: Sequence[SpanRow], dropped: int, note: str) -> TableData:
    """Distributions of spans, a line each.

    Args:
        dropped: spans that were not kept.
    """
    columns: Columns[SpanRow] = (
        Column("spans of", lambda row: row[0]),
        Column("what", lambda row: row[1]),
        number("spans", lambda row: row[2].count, count),
        number("mean", lambda row: row[2].mean_ns, duration),
        number("p50", lambda row: row[2].p50_ns, duration),
        number("p90", lambda row: row[2].p90_ns, duration),
        number("p99", lambda row: row[2].p99_ns, duration),
        number("max", lambda row: row[2].max_ns, duration),
    )
    notes = [note, *([f"{dropped:,} spans found no room in shared memory"] if dropped else [])]
    return table("Spans", columns, rows, notes=notes)


def platform_note(request: TimingRequest) -> str:
    """What predictions rest on."""
    platform, recorded = request.platform, ""
    if request.platform_recorded:
        recorded = ", the one recorded"
        if not is_current(platform):
            recorded += f", which is not {platform.name} as it is now (--platform {platform.name})"
    return (
        f"predicted from platform {platform.name}{recorded}, nothing refitted; in brackets how far a "
        "prediction is above what was measured"
    )


def other_gpu_notes(request: TimingRequest) -> Iterator[str]:
    """That the platform is of another GPU, where it is."""
    if request.other_gpu:
        yield other_gpu_note(request.platform, request.other_gpu)


def throttled_notes(throttled: int, launches: int) -> Iterator[str]:
    """That clocks were held down, where they were."""
    if throttled:
        yield (
            f"the GPU's clocks were held down in {throttled} of {launches} launches: "
            "times of those are of a GPU at its limits"
        )


def with_interval(difference_ns: float | None, ci95_ns: tuple[float, float] | None) -> str:
    """A difference of times, and behind it its interval in us."""
    shown = difference(difference_ns)
    if ci95_ns is None:
        return shown
    largest_ns = max(map(abs, ci95_ns))
    decimals = 3 if largest_ns < 1e3 else 2 if largest_ns < 100e3 else 0
    return shown + " [" + ", ".join(f"{bound / 1e3:.{decimals}f}" for bound in ci95_ns) + "]"


def tflop(flop_per_s: float) -> str:
    """In TFLOP/s, without the unit."""
    return f"{flop_per_s / _TERA:.1f}"
