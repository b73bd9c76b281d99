"""Tables as data, for the terminal and for HTML alike, and their terminal rendering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

#: Columns of output that goes to a file or a pipe: wide enough that no cell folds.
PIPE_WIDTH = 240


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading and the side its cells are aligned to."""

    heading: str
    align: Literal["left", "right"] = "left"


@dataclass(frozen=True, slots=True)
class TableData:
    """A table of finished text; ``rows`` are ``[n][len(columns)]``. ``notes`` are lines below it.

    A new ``section`` starts before each row index listed in it.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    sections: frozenset[int] = frozenset()


def result_console() -> Console:
    """A console on stdout for results: as wide as the terminal, or :data:`PIPE_WIDTH` where it is none.

    Colour follows the terminal and ``NO_COLOR``.
    """
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.file.isatty():
        console.width = PIPE_WIDTH
    return console


def render_table(data: TableData) -> RenderableType:
    """``data`` for a terminal; cells fold rather than lose text."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in data.columns:
        table.add_column(Text(column.heading), justify=column.align, overflow="fold")
    for index, row in enumerate(data.rows):
        if index in data.sections:
            table.add_section()
        table.add_row(*(Text(cell) for cell in row))
    notes = [Text(note, style="dim", overflow="fold") for note in data.notes]
    return Group(Text(data.title, style="bold cyan", overflow="fold"), table, *notes)
