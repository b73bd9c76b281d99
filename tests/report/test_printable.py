"""Nothing that a file or an argument says steers a terminal, or breaks a page or an SVG."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.conftest import RunCli
from tests.report import results
from tests.report.pages import Page
from xstage_tune.base.text import printable
from xstage_tune.platforms.loader import load_platform, save_platform
from xstage_tune.report.calibration_figure import calibration_figure
from xstage_tune.report.calibration_page import render_html
from xstage_tune.report.svg import render_svg
from xstage_tune.report.tables import Heading, TableData, render_table
from xstage_tune.report.terminal_plot import TerminalPlot

_HOSTILE = "\x1b[31mred\x07\x9b2J\u202eevil\udc80\x00\ufffe\nnext\tcell"
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(st.text())
@settings(deadline=None)
def test_printable_text_is_one_line_that_xml_and_utf8_hold_and_stays_what_it_is(text: str) -> None:
    shown = printable(text)
    assert not _STEERING.search(shown)
    assert "\n" not in shown
    assert ElementTree.fromstring(f"<a>{shown.translate({60: None, 38: None, 62: None})}</a>") is not None
    shown.encode()  # raises of a byte that is no UTF-8
    assert printable(shown) == shown


def test_what_does_not_print_is_shown_escaped() -> None:
    assert printable("\x1b[31m") == "\\x1b[31m"
    assert printable("caf\udcc3\udca9.toml") == "caf\\xc3\\xa9.toml"
    assert printable("two\nlines") == "two lines"
    assert printable("GPU, 3 µs, 東京") == "GPU, 3 µs, 東京"


def test_a_table_is_printable_wherever_its_text_is_from() -> None:
    stream = io.StringIO()
    data = TableData(_HOSTILE, (Heading(_HOSTILE),), ((_HOSTILE,),), (_HOSTILE,))
    Console(file=stream, width=300).print(render_table(data))
    assert not _STEERING.search(stream.getvalue())
    assert stream.getvalue().count("\\x1b[31mred") == 4


def test_figures_and_pages_hold_any_name() -> None:
    result = results.calibration()
    gpu = result.platform.gpu.model_copy(update={"name": _HOSTILE})
    platform = result.platform.model_copy(update={"gpu": gpu, "name": _HOSTILE, "description": _HOSTILE})
    result = replace(result, platform=platform)
    figure = calibration_figure(result)
    assert ElementTree.fromstring(render_svg(figure).encode()) is not None
    page = render_html(result)
    page.encode()
    assert not _STEERING.search(page)
    assert "\\x1b[31mred" in Page(page).text
    stream = io.StringIO()
    Console(file=stream, width=300).print(TerminalPlot(figure))
    assert not _STEERING.search(stream.getvalue())


def test_commands_pass_no_escape_to_the_terminal(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "hostile.toml"
    save_platform(load_platform("h200-host").model_copy(update={"description": _HOSTILE[:12]}), file)
    shown = run_cli("platforms", "show", str(file))
    assert shown.exit_code == 0
    assert "\\x1b[31mred" in shown.stdout
    missing = run_cli("platforms", "show", "\x1b[31mnone")
    assert missing.exit_code == 2
    assert "\\x1b[31mnone" in missing.stderr
    for text in (shown.stdout, shown.stderr, missing.stdout, missing.stderr):
        assert not _STEERING.search(text)


@pytest.mark.parametrize("text", ["T0", "a - b", "2 x 3"])
def test_ordinary_text_is_untouched(text: str) -> None:
    assert printable(text) == text
