"""``trace``: the spans of a run, or of a study's answer, for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.limits import EVENTS, LAUNCH
from xstage_tune.base.text import printable
from xstage_tune.commands._options import StoreOption, number
from xstage_tune.commands._runs import notify
from xstage_tune.commands._targets import (
    ForceOption,
    RunOption,
    StudyOption,
    StudyPlatformOption,
    UnfinishedOption,
    check_source,
    check_target,
)

if TYPE_CHECKING:
    from xstage_tune.report.trace_file import TracedLaunch, TraceSummary
    from xstage_tune.store.facade import Store


def trace(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.json.gz", help="Trace to write.")],
    run: RunOption = None,
    study: StudyOption = None,
    platform: StudyPlatformOption = None,
    unfinished: UnfinishedOption = False,
    launch: Annotated[int | None, number(LAUNCH, "Trace one launch of the run.", "all")] = None,
    max_events: Annotated[int, number(EVENTS, "Most spans to write.")] = 500_000,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write spans as Chrome trace events, which https://ui.perfetto.dev and chrome://tracing load.

    A process is a rank, a thread one role of one CTA. A study's trace is the simulated launch of its answer.
    """
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.trace_file import write_trace
    from xstage_tune.store.facade import Store

    check_source(run, study, platform, unfinished=unfinished)
    if study is not None and launch is not None:
        raise UsageError("--launch goes with --run: the answer of a study is one launch")
    check_target(output, ".json.gz", force=force)
    with Store.open(store, create=False) as opened, SweepProgress("tracing"):
        launches, about = (
            _of_run(opened, run, launch)
            if run is not None
            else _of_study(opened, study or "latest", platform, unfinished)
        )
        summary = write_trace(output, launches, most_spans=max_events, about=about, force=force)
    if summary.spans_left_out:
        notify(_left_out(summary))
    print(printable(str(output)))


def _left_out(summary: TraceSummary) -> str:
    """What the trace lacks, in one line, and how to have it."""
    spans = f"{summary.spans:,} of {summary.spans + summary.spans_left_out:,} spans are kept"
    which = "the earliest of each launch"
    if summary.launches_left_out:
        launches = summary.launches + summary.launches_left_out
        which = f"the earliest of {summary.launches:,} of {launches:,} launches, evenly over the run"
    return f"{spans}, {which}; --max-events raises the limit, --launch takes one launch"


def _of_run(store: Store, run_id: str, only: int | None) -> tuple[list[TracedLaunch], dict[str, Any]]:
    from xstage_tune.report.run_trace import find_run, traced_run

    run = find_run(store, run_id)
    about = {"run": run.id, "argv": run.argv, "tool": f"xstage-tune {run.tool_version}", "host": run.host}
    return traced_run(run, store.launches(run.id), only), about


def _of_study(
    store: Store, study_id: str, platform: str | None, unfinished: bool
) -> tuple[list[TracedLaunch], dict[str, Any]]:
    from xstage_tune.experiments.study import Simulations
    from xstage_tune.report.run_trace import traced_answer
    from xstage_tune.search.study_case import load_study

    study = load_study(store, study_id, platform, unfinished=unfinished)
    about = {"study": study.result.study_id, "workload": study.workload.name, "platform": study.platform.name}
    if study.result.unfinished:
        about["unfinished"] = study.result.unfinished
    case = Simulations(study.workload, study.platform).case(study.answer)
    return [traced_answer(study, case)], about
