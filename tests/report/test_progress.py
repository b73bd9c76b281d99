"""Progress of a sweep: shown on a terminal, silent elsewhere, gone when it ends."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from xstage_tune.report.progress import SweepProgress


def sweep(console: Console | None) -> None:
    with SweepProgress("calibrating", console) as progress:
        progress.planned(2)
        progress.advance("K = 8 [host]")
        progress.advance("K = 132 [host]")


def terminal(stream: io.StringIO) -> Console:
    return Console(file=stream, force_terminal=True, width=100)


def test_a_terminal_sees_the_count_and_the_label_as_given() -> None:
    stream = io.StringIO()
    sweep(terminal(stream))
    assert "calibrating" in stream.getvalue()
    assert "2/2" in stream.getvalue()
    assert "K = 132 [host]" in stream.getvalue()


def test_nothing_is_written_where_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)
    sweep(None)
    assert capsys.readouterr() == ("", "")


def test_stdout_stays_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sweep(None)
    assert capsys.readouterr().out == ""


def test_an_interrupted_sweep_gives_the_cursor_back() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), SweepProgress("calibrating", terminal(stream)):
        raise KeyboardInterrupt
    hidden, shown = stream.getvalue().rfind("\x1b[?25l"), stream.getvalue().rfind("\x1b[?25h")
    assert 0 <= hidden < shown
