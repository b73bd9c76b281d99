"""``report``: a run or a study as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.base.text import printable
from xstage_tune.commands._options import StoreOption
from xstage_tune.commands._targets import (
    ForceOption,
    RunOption,
    StudyOption,
    StudyPlatformOption,
    UnfinishedOption,
    check_source,
    check_target,
)


def report(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="Page to write.")],
    run: RunOption = None,
    study: StudyOption = None,
    platform: StudyPlatformOption = None,
    unfinished: UnfinishedOption = False,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write what a calibration, an emulation or a profile measured, or a study found, as one HTML page.

    A calibration: its four panels and every number. An emulation: each schedule beside its predictions, its
    spans. A profile: the fused attention beside the serial ones and its predictions, its spans. A study: the
    design test, the search against its bound, the answer beside its baselines, timelines, span distributions.
    Nothing is fetched to read it.
    """
    from xstage_tune.base.files import write_text
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.stored import run_page, study_page
    from xstage_tune.store.facade import Store

    check_source(run, study, platform, unfinished=unfinished)
    check_target(output, ".html", force=force)
    with Store.open(store, create=False) as opened, SweepProgress("drawing"):
        if run is not None:
            text = run_page(opened, run)
        else:
            assert study is not None
            text = study_page(opened, study, platform, unfinished=unfinished)
    write_text(output, text, force=force)
    print(printable(str(output)))
