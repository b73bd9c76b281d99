"""Tables of a calibration: every number present at any width, in colour or not, and in a pipe."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from tests.report import results
from xstage_tune.base.number_format import byte_count, duration, percent, rate
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.platforms.schema import CapacityLaw, PlatformProfile
from xstage_tune.report.calibration_tables import platform_report, platform_tables
from xstage_tune.report.tables import Heading, TableData, render_table, result_console, split_columns


def printed(result: CalibrationResult, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(platform_report(result.platform))
    return stream.getvalue()


def squeezed(text: str) -> str:
    """Text without white space, so that folding a cell does not matter."""
    return re.sub(r"\s+", "", text)


def table_titled(platform: PlatformProfile, start: str) -> TableData:
    return next(table for table in platform_tables(platform) if table.title.startswith(start))


def without(platform: PlatformProfile, *fields: str) -> PlatformProfile:
    empty = {"capacity": (), "capacity_law": ()}
    return platform.model_copy(update={field: empty.get(field) for field in fields})


@pytest.mark.parametrize("width", [80, 200, 240])
def test_every_quantity_is_whole_on_its_line(width: int) -> None:
    result = results.calibration()
    platform, text = result.platform, printed(result, width)
    quantities = [
        rate(platform.drain.bytes_per_s, platform.drain.ci95),
        rate(platform.drain.copy_engine_bytes_per_s),
        "95.5%",
        *(duration(point.ns, point.ci95) for point in platform.issue),
        *(byte_count(point.bytes, point.ci95) for point in platform.capacity),
        *(f"{group.share:.2%}" for group in platform.arbitration.groups),  # type: ignore[union-attr]
        "0.71%", "3.62%", "2.83%", "9.14%", "1.94%", "6.05%",
        "136.4 ns", "1.83%", "0.9931", "1.72%", "1.38x", "0.92x",
    ]  # fmt: skip
    for quantity in quantities:
        assert quantity in text
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


@pytest.mark.parametrize("width", [80, 200])
def test_no_cell_or_note_loses_a_word(width: int) -> None:
    result = results.calibration()
    text = printed(result, width)
    for table in platform_tables(result.platform):
        words = " ".join([*(cell for row in table.rows for cell in row), *table.notes]).split()
        missing = {word for word in words if word not in text and len(word) < width // 2}
        assert missing == set()


def test_a_word_longer_than_its_column_folds_and_keeps_every_character() -> None:
    stream = io.StringIO()
    digest = "0123456789abcdef" * 4
    Console(file=stream, width=30).print(render_table(TableData("t", (Heading("hash"),), ((digest,),))))
    assert digest in squeezed(stream.getvalue())


def on_terminal(data: TableData, width: int) -> list[str]:
    """Lines of a table on a terminal of ``width`` columns."""
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=True, color_system=None).print(render_table(data))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


WIDE = TableData(
    "wide",
    (
        Heading("tokens", "right"),
        *(Heading(f"time {number}", "right") for number in range(8)),
        Heading("why"),
    ),
    tuple(
        (f"{tokens:,}", *(f"{tokens / 7 + number:.2f} us" for number in range(8)), why)
        for tokens, why in (
            (1024, ""),
            (65536, "of 132 producers, the last 12 us wait for 1.25 MiB of others"),
        )
    ),
    notes=(
        "the stores of the last round of tiles drain in a time of exactly the 57.24 us that no Q-loop hides",
    ),
    sections=frozenset({1}),
)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_table_wider_than_the_terminal_is_blocks_that_each_begin_with_the_first_column(width: int) -> None:
    lines = on_terminal(WIDE, width)
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if "tokens" in line]
    assert len(heads) > 1
    assert [name for head in heads for name in re.findall(r"time \d|why", head)] == [
        column.text for column in WIDE.columns[1:]
    ]
    assert sum(line.lstrip().startswith("65,536") for line in lines) == len(heads)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_number_parts_from_its_unit_and_none_breaks_on_a_terminal(width: int) -> None:
    text = "\n".join(on_terminal(WIDE, width))
    for row in WIDE.rows:
        for cell in row[:-1]:
            assert cell in text
    for quantity in ("132 producers,", "12 us", "1.25 MiB", "57.24 us"):
        assert quantity in text


def test_a_block_leaves_out_rows_that_it_has_nothing_of() -> None:
    lines = on_terminal(WIDE, 60)
    last = lines[next(place for place, line in enumerate(lines) if "why" in line) :]
    assert any(line.startswith("65,536") for line in last)
    assert not any("1,024" in line for line in last)


def test_a_table_that_fits_the_terminal_is_one() -> None:
    stream = io.StringIO()
    Console(file=stream, width=240).print(render_table(WIDE))
    assert on_terminal(WIDE, 240) == [line.rstrip() for line in stream.getvalue().splitlines()]


def test_sm_ids_of_every_group_survive_folding() -> None:
    stream = io.StringIO()
    arbitration = table_titled(results.platform(), "Arbitration")
    Console(file=stream, width=60).print(render_table(arbitration))
    numbers = set(re.findall(r"\d+", stream.getvalue()))
    assert numbers >= {str(sm) for sm in range(0, 48)} | {"59", "60", "95", "96", "131"}


def test_a_pipe_gets_wide_tables_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    result_console().print(platform_report(results.platform()))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    even_ids = ", ".join(str(sm) for sm in range(0, 48, 2))
    assert any(line.endswith(even_ids) for line in lines)
    assert "\x1b" not in stream.getvalue()


def test_no_color_is_obeyed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    result_console().print(platform_report(results.platform()))
    assert not re.search(r"\x1b\[[\d;]*3\d", stream.getvalue())


def test_service_is_an_sm_s_rate_over_the_mean_of_all() -> None:
    rows = table_titled(results.platform(), "Arbitration").rows
    # 24 SMs and 36 SMs with a quarter of R each, among 132: 0.25*132/24 and 0.25*132/36
    assert [(row[2], row[4]) for row in rows] == [
        ("24", "1.38x"),
        ("36", "0.92x"),
        ("36", "0.92x"),
        ("36", "0.92x"),
    ]


def test_capacity_without_a_knee_is_called_a_lower_bound() -> None:
    rows = table_titled(results.platform(), "Outstanding").rows
    assert {row[4] for row in rows if row[1] == "8"} == {"not reached, lower bound"}
    assert {row[4] for row in rows if row[1] != "8"} == {"reached"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"law": "constant"}, "Q = 4 MiB"),
        ({"law": "linear"}, "Q = 4 MiB * K"),
        ({"law": "power", "exponent": 0.52}, "Q = 4 MiB * K^0.52"),
        ({"law": "saturating", "producers_scale": 40.0}, "Q = 4 MiB * (1 - exp(-K/40))"),
    ],
)
def test_each_capacity_law_is_written_out(fields: dict[str, object], expected: str) -> None:
    law = CapacityLaw.model_validate(
        {"flavour": "st.v4", "scale_bytes": 2**22, "rms_relative_error": 0.02, **fields}
    )
    platform = results.platform().model_copy(update={"capacity_law": (law,)})
    assert table_titled(platform, "Law").rows == (("st.v4", law.law, expected, percent(2.0)),)


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        (("capacity",), "Outstanding"),
        (("capacity_law",), "Law"),
        (("arbitration",), "Arbitration"),
        (("validation",), "Validation"),
    ],
)
def test_parts_that_a_profile_lacks_have_no_table(fields: tuple[str, ...], title: str) -> None:
    platform = without(results.platform(), *fields)
    assert not [table for table in platform_tables(platform) if table.title.startswith(title)]
    assert squeezed(title) not in squeezed(printed(replace(results.calibration(), platform=platform), 80))


def test_a_profile_with_only_what_is_required_is_shown() -> None:
    bare = without(
        results.platform(), "capacity", "capacity_law", "arbitration", "validation", "corner", "local_control"
    )
    drain = bare.drain.model_copy(update={"ci95": None, "copy_engine_bytes_per_s": None})
    titles = [table.title for table in platform_tables(bare.model_copy(update={"drain": drain}))]
    assert titles == ["Platform h200-host", "Issue time without backpressure, T0", "Provenance"]


def test_text_that_looks_like_markup_is_printed_as_it_is() -> None:
    stream = io.StringIO()
    data = TableData("[bold]t[/bold]", (Heading("[red]c"),), (("[link]x[/]",),), ("[dim]n",))
    Console(file=stream, width=80).print(render_table(data))
    for text in ("[bold]t[/bold]", "[red]c", "[link]x[/]", "[dim]n"):
        assert text in stream.getvalue()


def test_lines_between_sections_stay_where_they_are_though_rows_are_left_out() -> None:
    columns = (Heading("name"), Heading("first value", "right"), Heading("second value", "right"))
    rows = (("a", "1", "1"), ("b", "2", ""), ("c", "3", "3"))
    lines = on_terminal(TableData("t", columns, rows, sections=frozenset({2})), 24)
    blocks = [index for index, line in enumerate(lines) if line.startswith("name")]
    assert len(blocks) == 2
    told = [line.split()[0] if line.strip() else "" for line in lines[blocks[1] + 2 :]]
    assert told == ["a", "", "c"]


def test_in_a_pipe_a_row_is_one_line_however_wide_a_cell_is(capsys: pytest.CaptureFixture[str]) -> None:
    long = "from a source that takes many words " * 30
    rows = (("a", long.strip(), "1"), ("b", "short", "2"), ("c", "short", ""))
    data = TableData("t", (Heading("name"), Heading("origin"), Heading("last")), rows, (long.strip(),))
    result_console().print(render_table(data))
    title, headings, _, first, second, third, note = capsys.readouterr().out.splitlines()
    assert (title, headings.split()) == ("t", ["name", "origin", "last"])
    assert first.split(maxsplit=1)[1] == f"{long.strip()}   1"
    assert (second.split(), third) == (["b", "short", "2"], "c      short")
    assert note == long.strip()


@pytest.mark.parametrize("width", [40, 60, 90, 200])
def test_columns_are_split_for_a_page_as_for_a_terminal(width: int) -> None:
    parts = split_columns(WIDE, width)
    assert [part.title for part in parts] == [WIDE.title, *[""] * (len(parts) - 1)]
    assert parts[-1].notes == WIDE.notes
    assert not any(part.notes for part in parts[:-1])
    first, *others = (part.columns for part in parts)
    assert [*first, *(column for columns in others for column in columns[1:])] == list(WIDE.columns)
    assert all(columns[0] == WIDE.columns[0] for columns in others)
    headings = [line for line in on_terminal(WIDE, width) if line.startswith(WIDE.columns[0].text)]
    assert len(headings) == len(parts)
