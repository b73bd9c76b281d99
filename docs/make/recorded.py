"""Figures of the recorded runs that come with the tool, out of the pages that ``report`` writes of them."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from xstage_tune.commands._app import app

#: name: (command whose run is reported, title of the figure in its page)
_FIGURES = {
    "timelines": ("emulate", "What a few SMs did"),
    "residual": ("profile", "fa-a2a/paper: residual against tokens"),
}


def draw() -> Iterator[tuple[str, str]]:
    """(name, SVG) of each figure."""
    for name, (command, title) in _FIGURES.items():
        figures = re.findall(r"<svg.*?</svg>", _page(command), re.DOTALL)
        yield name, next(figure for figure in figures if f"<title>{title}</title>" in figure) + "\n"


def _page(command: str) -> str:
    """The report of the replay of a command's recording, in a store of its own."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        page = Path(folder) / "page.html"
        for arguments in ((command, "--device", "replay"), ("report", "--run", "latest", "-o", str(page))):
            app([*arguments, "--store", f"{folder}/store.db"], standalone_mode=False)
        return page.read_text(encoding="utf-8")
