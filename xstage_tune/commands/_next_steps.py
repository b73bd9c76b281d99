"""What a command did, and what its user does next: a few lines on stderr, behind a result to read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xstage_tune.base.progress import is_quiet
from xstage_tune.base.text import printable
from xstage_tune.export.names import ExportFormat

if TYPE_CHECKING:
    from xstage_tune.calibration.session import StoredCalibration
    from xstage_tune.experiments.emulation.result import EmulationResult
    from xstage_tune.export.record import TunedConfig
    from xstage_tune.search.result import SearchResult

#: A workload to begin with, of the shipped ones.
_FIRST_WORKLOAD = "megamoe/deepseek-v4-flash"


def after_calibration(calibration: StoredCalibration, profile: Path) -> None:
    """``profile``: the file written."""
    from xstage_tune.families.architecture import unmeasured_compute
    from xstage_tune.platforms.loader import user_platforms_dir

    platform = calibration.result.platform
    chosen = profile.stem if profile.parent == user_platforms_dir() else str(profile)
    done = f"calibrated {chosen}: T0, R and Q of the path {platform.path}"
    on_it = ("-w", _FIRST_WORKLOAD, "-p", chosen)
    if platform.compute is None:  # nothing to predict mainloops from
        lacks = (
            f"{platform.gpu.name} has no compute section, so audit, search and emulate cannot predict on it"
        )
        _say(f"{done}; {lacks}", ("a template of the section, to fill in", ("platforms", "gpu", chosen)))
        return
    if unmeasured := unmeasured_compute(platform):
        done += f"; {unmeasured}"
    _say(done, ("will it stall?", ("audit", *on_it)), ("find its best config", ("search", *on_it)))


def after_search(result: SearchResult, store: str | None) -> None:
    """``store``: as the command was given it."""
    study = (*_of_store(store), "--study", result.study_id)
    file = result.workload.replace("/", "-")
    _say(
        f"searched {result.workload} on {result.platform}: study {result.study_id}",
        ("for the server or the kernel", ("export", *study, "-o", f"{file}.json")),
        ("the search, drawn", ("report", *study, "-o", f"{file}.html")),
    )


def after_emulation(result: EmulationResult, store: str | None) -> None:
    """``store``: as the command was given it."""
    run = (*_of_store(store), "--run", result.run_id)
    _say(
        f"emulated {result.request.workload.name}: run {result.run_id}",
        ("schedules beside their predictions", ("report", *run, "-o", "emulation.html")),
        ("spans, for ui.perfetto.dev", ("trace", *run, "-o", "emulation.json.gz")),
    )


def after_import(run_id: str, store: str | None) -> None:
    """``store``: as the command was given it."""
    run = (*_of_store(store), "--run", run_id)
    _say(
        f"imported run {run_id}",
        ("distributions and a timeline", ("report", *run, "-o", "spans.html")),
        ("spans, for ui.perfetto.dev", ("trace", *run, "-o", "spans.json.gz")),
    )


def after_export(tuned: TunedConfig, to: ExportFormat, file: Path) -> None:
    """``file``: the export."""
    if is_quiet() or to not in (ExportFormat.JSON, ExportFormat.TOML):
        return
    asked = f"{json.dumps(str(file))}, {json.dumps(tuned.workload.name)}"  # Python reads JSON's strings
    code = f"import xstage_tune; print(xstage_tune.lookup({asked}).config.label)"
    _say_next(("python", "-c", code), "as a server asks for it")


def _of_store(location: str | None) -> tuple[str, ...]:
    """The option that names the store, where the next command would not find it by itself."""
    if location is None or location == os.environ.get("XSTAGE_STORE"):
        return ()
    if "://" not in location:
        return "--store", location
    from xstage_tune.store.location import resolve_location

    return "--store", str(resolve_location(location))  # without the password


def _say(done: str, *steps: tuple[str, tuple[str, ...]]) -> None:
    """What was done, then the commands to go on with, each with its purpose."""
    if is_quiet():
        return
    print(f"xstage-tune: {printable(done)}", file=sys.stderr)
    for purpose, command in steps:
        _say_next(("xstage-tune", *command), purpose)


def _say_next(command: tuple[str, ...], purpose: str) -> None:
    print(f"  next: {printable(shlex.join(command))}  # {purpose}", file=sys.stderr)
