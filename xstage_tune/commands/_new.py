"""What ``workloads new`` and ``platforms new`` share: where a template goes, and what it must not hide."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.text import printable
from xstage_tune.commands._runs import notify
from xstage_tune.commands._targets import check_target

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What commands find it by.")]
NewFileOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE.toml", help="File to write.", show_default="in the folder of your own"
    ),
]


def target_of(name: str, output: Path | None, folder: Path, known: Mapping[str, Path], force: bool) -> Path:
    """Where the template called ``name`` goes.

    Raises:
        UsageError: the name is none, the file exists, or something else is found by that name.
    """
    if name.endswith(".toml"):
        raise UsageError(f"'{name}' is a file, not a name", f"give a name too: NAME --output {name}")
    if output is not None:
        check_target(output, ".toml", force=force)
        return output
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise UsageError(f"'{name}' is no name of a file below {folder}", "name it like my-model/my-layer")
    target = folder / f"{name}.toml"
    check_target(target, ".toml", force=force)
    hidden = known.get(found_by(name))
    if hidden is not None and hidden != target and not force:
        raise UsageError(
            f"'{name}' is the name of {hidden}, which a file of your own would hide",
            "choose another name, or hide it with --force",
        )
    return target


def found_by(name: str) -> str:
    """The name that a profile in the user's folder is found by, whose folders are spelt with hyphens."""
    path = PurePosixPath(name)
    return str(PurePosixPath(*(part.replace("_", "-") for part in path.parent.parts), path.name))


def show_written(path: Path, next_command: str) -> None:
    """Say where the template is, on stdout, and what to do with it, on stderr."""
    print(printable(str(path)))
    notify(f"change its values, then: {next_command}")


def as_argument(name: str, output: Path | None) -> str:
    """How commands are told of what was written: by its name, or as the file it is."""
    return shlex.quote(found_by(name) if output is None else str(output))
