"""What commands that write files share: which run or study, and which file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import refuse_existing
from xstage_tune.commands._completion import platform_names, run_ids, study_ids

RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID|latest",
        autocompletion=run_ids,
        help="Run of the store; latest: the last one finished, latest-any: the last one begun.",
    ),
]
StudyOption = Annotated[
    str | None,
    typer.Option(
        "--study",
        metavar="ID|latest",
        autocompletion=study_ids,
        help="Study of the store; latest: the last one finished, latest-any: the last one begun.",
    ),
]
StudyPlatformOption = Annotated[
    str | None,
    typer.Option(
        "--platform",
        metavar="NAME|FILE.toml",
        autocompletion=platform_names,
        help="A profile in place of the one kept with the study.",
        show_default="as kept with the study",
    ),
]
UnfinishedOption = Annotated[
    bool,
    typer.Option("--unfinished", help="Take the best so far of a study that has not ended, marked as such."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
_OTHER_GPU = "ake a platform that was calibrated on another GPU, and mark the result so."
OtherGpuOption = Annotated[bool, typer.Option("--force", help=f"T{_OTHER_GPU}")]
ForceRunOption = Annotated[bool, typer.Option("--force", help=f"Replace an existing file; t{_OTHER_GPU}")]


def check_source(
    run: str | None, study: str | None, platform: str | None, *, unfinished: bool = False
) -> None:
    """Refuse anything but one run or one study.

    Raises:
        UsageError: both or neither is given, or what goes with a study for a run.
    """
    if (run is None) == (study is None):
        raise UsageError("give either --run or --study", "--run latest, or --study latest")
    if run is not None and platform is not None:
        raise UsageError("--platform goes with --study: a run knows its own")
    if run is not None and unfinished:
        raise UsageError("--unfinished goes with --study", "--run ID takes a run whatever its state")


def check_target(path: Path, *suffixes: str, force: bool, option: str = "--output") -> None:
    """Refuse a target before any work is done for it.

    Raises:
        UsageError: it ends in none of ``suffixes``, or it exists and ``force`` is not set.
    """
    if not path.name.endswith(suffixes) or path.name in suffixes:
        wanted = " or ".join(suffixes)
        raise UsageError(
            f"{option} {path} must end in {wanted}", f"name it {path.with_name(path.stem)}{suffixes[0]}"
        )
    refuse_existing(path, force)
