"""What commands share that run on a GPU or replay a recorded run: the path, and what a replay refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath

PathChoice = Literal["auto", "peer", "host", "local"]
PathOption = Annotated[
    PathChoice, typer.Option("--path", help="Whose memory is stored to; auto: the platform's.")
]
#: What a recording does not decide.
_OF_ANY_DEVICE = ("device", "store", "output", "force")
#: Parameters whose option has another name.
_OPTION_OF = {"overrides": "set"}


def refuse_options(context: typer.Context, otherwise: str, allowed: tuple[str, ...] = ()) -> None:
    """A recording replays as it was made: nothing of it can be chosen.

    Args:
        otherwise: how to have a choice.
        allowed: parameters that the recording leaves open.

    Raises:
        UsageError: an option was given that chooses something.
    """
    if given := given_options(context, (*_OF_ANY_DEVICE, *allowed)):
        raise UsageError(
            f"--device replay takes no {given}: only what was recorded can be replayed",
            f"leave these options out, or {otherwise}",
        )


def given_options(context: typer.Context, but: tuple[str, ...]) -> str:
    """The options on the command line, as they are written, but those of these parameters."""
    source = context.get_parameter_source
    given = [name for name in context.params if name not in but and _is_given(source(name))]
    return ", ".join(f"--{_OPTION_OF.get(name, name).replace('_', '-')}" for name in given)


def _is_given(source: object) -> bool:
    return getattr(source, "name", "") == "COMMANDLINE"


def named_path(choice: PathChoice) -> StorePath | None:
    """What ``--path`` names; None leaves it to the platform."""
    return None if choice == "auto" else choice
