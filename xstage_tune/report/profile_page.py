"""The page of a profile run: fused beside serial and beside its predictions, its spans, how it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xstage_tune.base.number_format import duration, factor, percent
from xstage_tune.experiments.timing.result import PointResult, ProfileResult
from xstage_tune.families.attention_a2a.spans import tile_spans
from xstage_tune.families.attention_a2a.timing import ATTENTIONS
from xstage_tune.report.figure import Figure, Floats
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.profile_figure import span_figure, sweep_figure
from xstage_tune.report.profile_tables import point_tables, profile_tables
from xstage_tune.report.run_report import launches_table, run_sentence, run_table
from xstage_tune.report.sentences import platform_sentence, workload_sentence
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run


def render_profile(run: Run, result: ProfileResult, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``.

    Raises:
        StoreError: spans are damaged, or the database failed.
    """
    title = f"Profile of {result.request.workload.name}"
    return render_page(title, tuple(_blocks(run, result, launches)), _lead(run, result))


def _lead(run: Run, result: ProfileResult) -> tuple[str, ...]:
    """What was found, in words."""
    request = result.request
    what = (
        f"{workload_sentence(request.workload)} Config {request.config.label} on {result.device_name}, path "
        f"{request.path}."
    )
    answers = [run_sentence(run), *(_answer(point) for point in result.points[-1:])]
    return what, " ".join(part for part in answers if part)


def _answer(point: PointResult) -> str:
    residual_ns, share = point.residual_ns(), point.residual_of_attention()
    speedup, hiding = point.speedup("serial-direct"), point.hiding_ratio("serial-direct")
    if residual_ns is None or share is None:
        return ""
    faster = ""
    if speedup is not None and hiding is not None:
        hidden = percent(100 * hiding, 1)
        faster = f"; {factor(speedup)} over serial with direct stores, {hidden} of whose All-to-All it hides"
    return (
        f"At {point.case.tokens:,} tokens the fused kernel takes {duration(point.time_ns('fused'))}, E_res "
        f"{duration(round(residual_ns, 3))} ({percent(100 * share)} of T_FA, {_surely(point)}){faster}."
    )


def _surely(point: PointResult) -> str:
    """E_res as far as it is known."""
    interval_ns, compared = point.residual_ci95_ns(), len(point.beyond_ns("fused"))
    if interval_ns is None:
        return f"median of {compared}, too few for an interval"
    low, high = (duration(round(bound, 3)) for bound in interval_ns)
    return f"95% interval {low} to {high}"


def _blocks(run: Run, result: ProfileResult, launches: Sequence[StoredLaunch]) -> Iterator[Block]:
    asked = (platform_sentence(result.request.platform),) if result.request.predicted else ()
    if result.request.sweep is not None:
        yield Block(
            heading="Sweep",
            paragraphs=asked,
            figure=sweep_figure(result),
            caption="Points were measured; lines are predicted from the calibrated platform alone.",
            tables=profile_tables(result),
        )
        for point in result.points:
            yield Block(heading=f"{point.case.tokens:,} tokens", tables=point_tables(result, point))
    else:
        yield Block(heading="Implementations", paragraphs=asked, tables=profile_tables(result))
        figure = _spans_of(result, launches)
        if figure is not None:
            yield Block(
                heading="Span distributions",
                figure=figure,
                caption="The attention alone stores locally: it is the control of T_RS, and its Q-loop is G.",
            )
    yield Block(heading="Run", tables=(run_table(run, launches), launches_table(launches)))


def _spans_of(result: ProfileResult, launches: Sequence[StoredLaunch]) -> Figure | None:
    """Distributions of the recorded launches; None of a run that came to none."""
    issue_ns: dict[str, Floats] = {}
    q_loop_ns: dict[str, Floats] = {}
    for launch in launches:
        point = launch.point_as(ATTENTIONS)
        if point.what != "spans":
            continue
        remote = point.implementation == "fused"
        tiles = tile_spans(launch.table(), result.points[0].case, remote=remote)
        stores = tiles.issue_ns[tiles.remote] if tiles.remote.any() else tiles.issue_ns
        if tiles.remote.size:
            issue_ns[point.implementation] = stores
            q_loop_ns[point.implementation] = tiles.q_loop_ns.mean(axis=1)
    return span_figure(result, issue_ns, q_loop_ns) if issue_ns else None
