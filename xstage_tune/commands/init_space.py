"""``init-space``: a space of one's own that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.base.files import refuse_existing, write_text
from xstage_tune.commands._new import show_written
from xstage_tune.commands._targets import ForceOption

#: Of the family of kernels of one's own.
_KIND = "own"


def init_space(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write the two files into.")],
    name: Annotated[
        str | None,
        typer.Option(help="What results call the kernel.", show_default="own/FOLDER"),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the space of a kernel of your own: space.toml, and bench.py, which times a stand-in.

    It runs as it is, without a GPU. Put your kernel into bench.py, and its axes into space.toml.
    """
    import shlex

    from xstage_tune.families.registry import family_of_workload_kind
    from xstage_tune.families.workload_template import workload_template

    family = family_of_workload_kind(_KIND)
    assert family is not None
    space = folder / "space.toml"
    texts = {space: workload_template(name or f"own/{folder.resolve().name.lower()}", _KIND)}
    texts |= {folder / beside: text for beside, text in family.template_companions().items()}
    for file in texts:
        refuse_existing(file, force)
    for file, text in texts.items():
        write_text(file, text, force=force)
    show_written(space, f"xstage-tune search --space {shlex.quote(str(space))}")
