"""Progress: a bar on a terminal, gone when the work ends; lines elsewhere; nothing on stdout."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios
import time

import pytest
from rich.console import Console

from xstage_tune.base.progress import phase
from xstage_tune.report import progress as progress_module
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
    assert "2 of 2" in stream.getvalue()
    assert "K = 132 [host]" in stream.getvalue()


def test_the_count_gives_way_to_a_phase_and_comes_back() -> None:
    stream = io.StringIO()
    with SweepProgress("searching", terminal(stream)) as progress:
        progress.planned(60)
        before = drawn_since(stream, progress)
        with phase("compiling"):
            during = drawn_since(stream, progress)
        progress.advance("best 2 us")
        after = drawn_since(stream, progress)
    assert "searching" in before
    assert "0/60" not in before
    assert "--:--" not in before
    assert "compiling" in during
    assert "searching" not in during
    assert "1 of 60" in after
    assert "best 2 us" in after


def drawn_since(stream: io.StringIO, progress: SweepProgress) -> str:
    """What a refresh draws."""
    stream.seek(0)
    stream.truncate()
    progress.refresh()
    return stream.getvalue()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines without a terminal come at once, and are few milliseconds apart."""
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(progress_module, "_FIRST_LINE_S", 0.0)
    monkeypatch.setattr(progress_module, "_LINES_APART_S", 0.01)


def await_lines(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """Read stderr until a line has all these words; stdout stays empty."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        out, err = capsys.readouterr()
        assert out == ""
        if any(all(word in line for word in words) for line in err.splitlines()):
            return
        time.sleep(0.01)
    pytest.fail(f"no line with {words}")


@pytest.mark.usefixtures("soon")
def test_without_a_terminal_lines_say_what_is_done_of_how_many_and_how_things_stand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with SweepProgress("searching") as progress:
        progress.planned(60)
        await_lines(capsys, "xstage-tune: searching")
        progress.advance("best 3 us")
        time.sleep(0.01)
        progress.advance("best 2 us")
        await_lines(capsys, "searching", "2 of 60", " s left", "best 2 us")
        with phase("running the best again"):
            await_lines(capsys, "running the best again")
        await_lines(capsys, "searching", "2 of 60")


def test_without_a_terminal_a_long_phase_is_announced_before_it_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with SweepProgress("searching"):
        with phase("fitting"):
            assert "fitting" not in capsys.readouterr().err
        with phase("compiling", at_once=True):
            assert capsys.readouterr().err == "xstage-tune: compiling\n"


@pytest.mark.usefixtures("soon")
def test_no_line_comes_when_the_work_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepProgress("searching"):
        await_lines(capsys, "searching")
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("soon")
def test_a_quiet_program_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "is_quiet", lambda: True)
    with SweepProgress("searching"), phase("compiling", at_once=True):
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_a_phase_without_anybody_to_show_it_is_only_done() -> None:
    with phase("compiling", at_once=True):
        pass


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


def test_a_real_terminal_shows_the_phase_and_then_the_count() -> None:
    program = """
import time
from xstage_tune.base.progress import phase
from xstage_tune.report.progress import SweepProgress
with SweepProgress("searching") as progress:
    progress.planned(60)
    with phase("compiling", at_once=True):
        time.sleep(0.3)
    progress.advance("best 2 us")
    time.sleep(0.3)
"""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    ran = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert ran.stdout == b""
    assert drawn.index("compiling") < drawn.index("1 of 60")
    assert "best 2 us" in drawn
    assert "--:--" not in drawn
