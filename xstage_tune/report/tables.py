"""Tables from declared columns, as data that pages show too, and how terminals and pipes show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from xstage_tune.base.number_format import ABSENT
from xstage_tune.base.text import printable

#: Columns of output that goes to a file or a pipe: wider than any line, so that a row is one.
PIPE_WIDTH = 10_000
_BETWEEN = 3  # between two columns
_TEXT_PART = 3  # a column of text is folded to no less than this part of the terminal
#: Where a line may break: not between a number and its unit.
_BREAK = re.compile(r"(?<!\d)\s+|\s+(?![A-Za-z])")

Align = Literal["left", "right"]
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A declared column: its heading, a row's value, how that is shown with its unit, and on which side."""

    heading: str
    of: Callable[[Row], Any]
    show: Callable[[Any], str] = str
    align: Align = "left"

    def cell(self, row: Row) -> str:
        """The shown value of ``row``; :data:`ABSENT` where it has none."""
        value = self.of(row)
        return ABSENT if value is None else self.show(value)


Columns: TypeAlias = Sequence[Column[Row]]


def number(heading: str, of: Callable[[Row], Any], show: Callable[[Any], str] = str) -> Column[Row]:
    """A column of figures, whose digits stand below each other."""
    return Column(heading, of, show, "right")


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's heading and the side its cells are aligned to."""

    text: str
    align: Align = "left"


@dataclass(frozen=True, slots=True)
class TableData:
    """A table of finished text; ``rows`` are ``[n][len(columns)]``. ``notes`` are lines below it.

    A new ``section`` starts before each row index listed in it. All text is made printable here, wherever it
    is from: what renders a table need not look at it.
    """

    title: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    sections: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        columns = tuple(Heading(printable(column.text), column.align) for column in self.columns)
        object.__setattr__(self, "title", printable(self.title))
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", tuple(tuple(map(printable, row)) for row in self.rows))
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))

    def transposed(self, *, sections: Collection[int] = ()) -> TableData:
        """With a column for each row, whose first cell heads it, and a row for each column."""
        corner, *names = (column.text for column in self.columns)
        heads, *cells = zip(*self.rows, strict=True)
        columns = (Heading(corner), *(Heading(head, "right") for head in heads))
        rows = tuple((name, *values) for name, values in zip(names, cells, strict=True))
        return TableData(self.title, columns, rows, self.notes, frozenset(sections))


def table(
    title: str,
    columns: Columns[Row],
    rows: Iterable[Row],
    *,
    notes: Iterable[str] = (),
    sections: Collection[int] = (),
    section_of: Callable[[Row], object] | None = None,
) -> TableData:
    """The declared ``columns`` of ``rows``; a section begins where ``section_of`` a row changes."""
    rows = tuple(rows)
    if section_of is not None:
        keys = map(section_of, rows)
        sections = [index for index, (before, now) in enumerate(pairwise(keys), start=1) if before != now]
    return TableData(
        title,
        tuple(Heading(column.heading, column.align) for column in columns),
        tuple(tuple(column.cell(row) for column in columns) for row in rows),
        tuple(notes),
        frozenset(sections),
    )


def pairs(
    title: str,
    rows: Iterable[tuple[str, str]],
    headings: tuple[str, str] = ("what", "value"),
    *,
    notes: Iterable[str] = (),
    sections: Collection[int] = (),
) -> TableData:
    """A table of names and what they are."""
    name, value = headings
    columns: Columns[tuple[str, str]] = (Column(name, itemgetter(0)), Column(value, itemgetter(1)))
    return table(title, columns, rows, notes=notes, sections=sections)


def result_console() -> Console:
    """A console on stdout for results: as wide as the terminal, or :data:`PIPE_WIDTH` where it is none.

    Colour follows the terminal and ``NO_COLOR``.
    """
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.file.isatty():
        console.width = PIPE_WIDTH
    return console


def print_tables(*tables: TableData) -> None:
    """Write tables to stdout, one below the other."""
    console = result_console()
    for data in tables:
        console.print(render_table(data))


def render_report(tables: Iterable[TableData], lead: str = "") -> RenderableType:
    """Tables for a console, an empty line behind each, under a ``lead`` where there is one."""
    parts = [Text(printable(lead)), Text()] if lead else []
    return Group(*parts, *(part for data in tables for part in (render_table(data), Text())))


def render_table(data: TableData) -> RenderableType:
    """``data`` for a console: one table, or on a narrower terminal blocks of columns one below the other.

    Each block begins with the first column; those after the first leave out rows that they have nothing of.
    Cells and headings break between words only, and never between a number and its unit.
    """
    return _Fitted(data)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table that takes the form its console has room for."""

    data: TableData

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        data, width = self.data, options.max_width
        yield Text(data.title, style="bold cyan", overflow="fold")
        whole = _natural_widths(data)
        if not console.is_terminal:
            yield from _without_padding(console, options, _table(data, dict(enumerate(whole))))
            yield from (Text(note, style="dim", overflow="fold") for note in data.notes)
            return
        if _joined_width(whole) <= width:
            yield _table(data, dict(enumerate(whole)))
            yield from (Text(note, style="dim", overflow="fold") for note in data.notes)
            return
        for number, block in enumerate(_blocks(data, width)):
            yield from [Text()] if number else []
            yield _table(_told_by(data, number, block), block, folded=True)
        yield from (Text(_fold(note, width), style="dim", overflow="fold") for note in data.notes)


def _without_padding(console: Console, options: ConsoleOptions, table: Table) -> Iterator[Text]:
    """The lines of a table without the spaces that would fill them up: the widest cell may be very wide."""
    for line in console.render_lines(table, options, pad=False):
        yield Text("".join(segment.text for segment in line).rstrip(), overflow="fold")


def split_columns(data: TableData, width: int) -> tuple[TableData, ...]:
    """``data`` as tables for pages of ``width`` characters, whose text cells break between words.

    Their columns are those of :func:`render_table`'s blocks on a terminal of that width. The first table has
    the title, the last one the notes.
    """
    blocks = _blocks(data, width)
    parts = []
    for number, block in enumerate(blocks):
        told = _told_by(data, number, block)
        parts.append(
            TableData(
                title=data.title if number == 0 else "",
                columns=tuple(data.columns[index] for index in block),
                rows=tuple(tuple(row[index] for index in block) for row in told.rows),
                notes=data.notes if number == len(blocks) - 1 else (),
                sections=told.sections,
            )
        )
    return tuple(parts)


def _told_by(data: TableData, number: int, block: Collection[int]) -> TableData:
    """The rows that a block has something of, all in the first; lines between sections where they were."""
    told = [not number or any(row[index] for index in [*block][1:]) for row in data.rows]
    rows = tuple(row for row, kept in zip(data.rows, told, strict=True) if kept)
    return replace(data, rows=rows, sections=frozenset(sum(told[:index]) for index in data.sections))


def _table(data: TableData, widths: dict[int, int], *, folded: bool = False) -> Table:
    """The columns in ``widths``, by index; ``folded`` to them by us, which knows units, and not by rich."""

    def text(cell: str, column: int) -> Text:
        return Text(_fold(cell, widths[column]) if folded else cell)

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in widths:
        shown = data.columns[column]
        table.add_column(text(shown.text, column), justify=shown.align, overflow="fold")
    for index, row in enumerate(data.rows):
        if index in data.sections:
            table.add_section()
        table.add_row(*(text(row[column], column) for column in widths))
    return table


def _blocks(data: TableData, width: int) -> list[dict[int, int]]:
    """The columns of each block by index, and how wide each is; text gives way, and takes what is left."""
    whole = _natural_widths(data)
    least = [
        max(_longest_word(data, index), min(whole[index], width // _TEXT_PART))
        if column.align == "left"
        else whole[index]
        for index, column in enumerate(data.columns)
    ]
    blocks = [[0]]
    for index in range(1, len(least)):
        if len(blocks[-1]) > 1 and _joined_width([least[each] for each in [*blocks[-1], index]]) > width:
            blocks.append([0])
        blocks[-1].append(index)
    return [_widened({index: least[index] for index in block}, whole, width) for block in blocks]


def _widened(least: dict[int, int], whole: Sequence[int], width: int) -> dict[int, int]:
    """``least`` with the room that is left of ``width``, at most as wide as ``whole``."""
    left, widths = max(0, width - _joined_width(least.values())), {}
    for index, narrow in least.items():
        widths[index] = min(whole[index], narrow + left)
        left -= widths[index] - narrow
    return widths


def _cells(data: TableData, index: int) -> list[str]:
    return [data.columns[index].text, *(row[index] for row in data.rows)]


def _natural_widths(data: TableData) -> list[int]:
    return [max(map(len, _cells(data, index))) for index in range(len(data.columns))]


def _longest_word(data: TableData, index: int) -> int:
    return max(len(word) for cell in _cells(data, index) for word in _BREAK.split(cell))


def _joined_width(widths: Collection[int]) -> int:
    return sum(widths) + _BETWEEN * (len(widths) - 1)


def _fold(text: str, width: int) -> str:
    """``text`` in lines of at most ``width``, as far as its words allow."""
    lines = [""]
    for word in _BREAK.split(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and len(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)
