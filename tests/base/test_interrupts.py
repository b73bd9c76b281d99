"""Ctrl-C and SIGTERM: held back where it must not come, never lost, and harmless once the work is done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.processes import start_command
from xstage_tune.base.interrupts import held_back
from xstage_tune.store.facade import Store

TRIES = 4
SEARCH = (
    "search",
    "--workload",
    "fa-a2a/paper",
    "--trials",
    "60",
    "--tolerance",
    "0",
    "-p",
    "paper-nvlink5",
)
EMULATE = (
    "emulate",
    "--device",
    "simulator",
    "--workload",
    "fa-a2a/paper",
    "--repeats",
    "40",
    "-p",
    "h200-host",
)


class Ended(NamedTuple):
    """How a command ended, what it wrote, and how long it took."""

    code: int
    stdout: str
    stderr: str
    took_s: float


def run(
    *command: str, store: Path, stop_after_s: float | None = None, again_after_s: float | None = None
) -> Ended:
    """Run a command in a process of its own, and interrupt it, once or twice, if that is asked for.

    What it imports it has: else most interrupts would come before it is at work.
    """
    started = start_command(store.parent, *command, "--format", "json", "--store", str(store))
    began = time.monotonic()
    if stop_after_s is not None and not started.wait(stop_after_s):
        started.send_signal(signal.SIGINT)
        if again_after_s is not None:
            time.sleep(again_after_s)
            started.send_signal(signal.SIGINT)
    stdout, stderr = started.communicate(120)
    assert started.returncode is not None
    return Ended(started.returncode, stdout, stderr, time.monotonic() - began)


def stops_s(whole: Ended, seed: int) -> list[float]:
    """Times to interrupt a command at: from when it surely listens, until half of it is done."""
    chance = random.Random(seed)
    return [chance.uniform(0.2, 0.5) * whole.took_s for _ in range(TRIES)]


def program_ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of Python's, in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def assert_interrupted(ended: Ended) -> None:
    assert ended.code == 130, ended
    assert ended.stdout == ""
    assert "interrupted" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_search_that_is_stopped_again_and_again_comes_to_the_same_result(tmp_path: Path) -> None:
    whole = run(*SEARCH, store=tmp_path / "whole.db")
    file = tmp_path / "stopped.db"
    resume: tuple[str, ...] = ()
    for stop_s in stops_s(whole, seed=1):
        ended = run(*SEARCH, *resume, store=file, stop_after_s=stop_s)
        if ended.code == 0:
            break  # a machine that other work slows was done before the signal
        assert_interrupted(ended)
        if file.exists():
            with Store.open(file) as store:
                assert store.check().problems == ()
                resume = ("--resume", "latest") if store.studies.all() else ()
    resumed = run(*SEARCH, *resume, store=file)
    assert resume
    assert [(ended.code, ended.stderr) for ended in (whole, resumed)] == [(0, ""), (0, "")]
    results = [json.loads(ended.stdout) for ended in (whole, resumed)]
    for result in results:
        del result["study_id"]
    assert results[0] == results[1]


def test_an_emulation_that_is_stopped_keeps_its_launches(tmp_path: Path) -> None:
    whole = run(*EMULATE, store=tmp_path / "whole.db")
    assert whole.code == 0
    for number, stop_s in enumerate(stops_s(whole, seed=2)):
        file = tmp_path / f"{number}.db"
        ended = run(*EMULATE, store=file, stop_after_s=stop_s)
        if ended.code == 0:
            continue  # a machine that other work slows was done before the signal
        assert_interrupted(ended)
        if not file.exists():
            continue
        with Store.open(file) as store:
            assert store.check().problems == ()
            for begun in store.runs():
                kept = len(store.launches(begun.id))
                assert begun.status in ("interrupted", "failed")
                assert not kept or f"{kept} launches are kept in run {begun.id}" in ended.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_result_changes_nothing(name: str) -> None:
    """CPython frees everything behind the last line of the program, the signal's default action restored."""
    program = f"""
import atexit, os, signal, sys
from xstage_tune import cli
atexit.register(os.kill, os.getpid(), signal.{name})
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "h200-host" in ran.stdout


def test_ctrl_c_while_the_commands_are_loaded_is_said() -> None:
    program = """
import signal, sys
from importlib.abc import MetaPathFinder
from xstage_tune import cli

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "xstage-tune: interrupted\n")


def test_ctrl_c_before_the_program_listens_ends_it_in_silence() -> None:
    program = """
import signal, sys
from importlib.abc import MetaPathFinder

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "xstage_tune.cli":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from xstage_tune.__main__ import entry
entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "", "")


def loading(
    *command: str, store: Path, stop_after_s: float | None = None, again_after_s: float = 0.0
) -> Ended:
    """As :func:`run`, of a process that imports what the command needs meanwhile."""
    program = "import xstage_tune.__main__ as m; print('up', flush=True); m.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command],
        env={**os.environ, "XSTAGE_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    up = time.monotonic()
    if stop_after_s is not None:
        time.sleep(stop_after_s)
        process.send_signal(signal.SIGINT)
        time.sleep(again_after_s)
        process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    return Ended(process.returncode, stdout, stderr, time.monotonic() - up)


@pytest.mark.parametrize(
    ("command", "run_it"),
    [
        (("workloads", "list"), loading),
        (("store", "info"), run),
        (("search", "-w", "fa-a2a/paper", "-p", "paper-nvlink5", "--trials", "6"), run),
    ],
)
def test_ctrl_c_twice_at_any_moment_prints_no_traceback(
    tmp_path: Path, command: tuple[str, ...], run_it: Callable[..., Ended]
) -> None:
    file = tmp_path / "store.db"
    with Store.open(file):
        pass
    whole = run_it(*command, store=file)
    assert whole.code == 0
    chance = random.Random(4)
    for _ in range(4):
        stop_s, again_s = chance.uniform(0, 1.1) * whole.took_s, chance.choice((0.0, 0.002, 0.01, 0.02))
        stopped = run_it(*command, store=file, stop_after_s=stop_s, again_after_s=again_s)
        assert stopped.code in (0, 130), stopped
        assert stopped.stderr in ("", "xstage-tune: interrupted\n") or "search interrupted" in stopped.stderr
        assert "Traceback" not in stopped.stderr
        with Store.open(file) as store:
            assert store.check().problems == ()


@pytest.mark.parametrize(("pause_s", "said"), [(0.0, "interrupted"), (1.2, "stopped at once")])
def test_ctrl_c_again_ends_a_clean_end_that_takes_too_long(pause_s: float, said: str) -> None:
    program = f"""
import signal, sys, time
from xstage_tune import cli
from xstage_tune.platforms import loader

def ending():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        time.sleep({pause_s})
        signal.raise_signal(signal.SIGINT)
        print("the end", flush=True)

loader.list_platforms = ending
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert ran.returncode == 130
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert (ran.stdout == "the end\n") == (pause_s == 0.0)


def test_ctrl_c_where_nothing_stands_around_prints_nothing() -> None:
    program = """
import signal
from xstage_tune.base import interrupts
from xstage_tune import cli
cli.main = lambda: print("result")
interrupts.finish = lambda: signal.raise_signal(signal.SIGINT)
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "result\n", "")


def test_ctrl_c_while_the_store_closes_comes_out_behind_it(tmp_path: Path) -> None:
    program = """
import signal, sqlite3, sys
from xstage_tune import cli
from xstage_tune.store import dialects

class Closing(sqlite3.Connection):
    def close(self):
        signal.raise_signal(signal.SIGINT)
        super().close()

connect = sqlite3.connect
sqlite3.connect = sqlite3.dbapi2.connect = lambda *given, **named: connect(*given, factory=Closing, **named)
sys.argv = ["xstage-tune", "store", "info", "--store", sys.argv[1]]
cli.entry()
"""
    file = tmp_path / "store.db"
    with Store.open(file):
        pass
    ran = program_ended(program, str(file))
    assert (ran.returncode, ran.stderr) == (130, "xstage-tune: interrupted\n")


def test_ctrl_c_in_code_made_from_text_is_ctrl_c() -> None:
    program = """
import sys
from xstage_tune import cli

def stop():
    exec("import signal; signal.raise_signal(signal.SIGINT)")

import xstage_tune.platforms.loader
xstage_tune.platforms.loader.list_platforms = stop
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "xstage-tune: interrupted\n")


def test_ctrl_c_that_a_callback_dropped_ends_the_program_at_the_next_launch() -> None:
    program = """
import signal, sys
from xstage_tune import cli
from xstage_tune.platforms import loader
from xstage_tune.report.progress import SweepProgress

class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def dropped():
    with SweepProgress("measuring") as progress:
        Freed()
        sys.stdout.write("dropped")
        progress.advance("launch")
        sys.stdout.write(", not noticed")

loader.list_platforms = dropped
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "dropped", "xstage-tune: interrupted\n")


def test_what_a_stop_leaves_half_made_fails_in_silence() -> None:
    program = """
import signal, sys
from xstage_tune import cli
from xstage_tune.platforms import loader

class HalfMade:
    def __init__(self):
        signal.raise_signal(signal.SIGINT)
        self.made = True
    def __del__(self):
        print(self.made)

loader.list_platforms = HalfMade
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "xstage-tune: interrupted\n")


@pytest.mark.parametrize(
    ("disguise", "said"),
    [
        ("ValueError('schema')", "xstage-tune: interrupted"),
        ("UsageError('schema')", "xstage-tune: error: schema"),
    ],
)
def test_an_error_that_native_code_raised_in_its_place_is_ctrl_c(disguise: str, said: str) -> None:
    program = f"""
import signal, sys
from xstage_tune import cli
from xstage_tune.base.errors import UsageError
from xstage_tune.platforms import loader

def disguised():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise {disguise}

loader.list_platforms = disguised
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", f"{said}\n")


def test_a_signal_held_back_is_raised_behind_the_block() -> None:
    done = []

    def hold() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            done.append("block")
        done.append("behind it")

    with pytest.raises(KeyboardInterrupt):
        hold()
    assert done == ["block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_that_fails_gives_the_handler_back() -> None:
    with pytest.raises(ValueError, match="broken"), held_back():
        raise ValueError("broken")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_thread_holds_nothing_back() -> None:
    """Handlers belong to the main thread: to touch one elsewhere is an error."""
    entered = threading.Event()

    def enter() -> None:
        with held_back():
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with held_back():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_program_that_was_started_deaf_to_a_signal_stays_so(name: str) -> None:
    """A job in the background is deaf to the terminal's Ctrl-C."""
    program = (
        "import os, signal\n"
        f"signal.signal(signal.{name}, signal.SIG_IGN)\n"
        "from xstage_tune.base import interrupts\n"
        "interrupts.listen()\n"
        f"os.kill(os.getpid(), signal.{name})\n"
        "print('goes on', interrupts.asked_to_stop())\n"
    )
    done = program_ended(program)
    assert done.returncode == 0
    assert done.stdout == "goes on False\n"


def test_sigterm_is_held_back_as_ctrl_c_is() -> None:
    program = """
import signal, sys
from xstage_tune import cli
from xstage_tune.base.interrupts import held_back
from xstage_tune.platforms import loader

def stopped():
    with held_back():
        signal.raise_signal(signal.SIGTERM)
        sys.stdout.write("block")
    sys.stdout.write(", not behind it")

loader.list_platforms = stopped
sys.argv = ["xstage-tune", "platforms", "list"]
cli.entry()
"""
    ran = program_ended(program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (143, "block", "xstage-tune: interrupted\n")


def test_a_second_sigterm_does_not_disturb_the_clean_end_of_the_first() -> None:
    program = (
        "import signal\n"
        "from xstage_tune.base import interrupts\n"
        "interrupts.listen()\n"
        "try:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('goes on', int(interrupts.exit_code()))\n"
    )
    done = program_ended(program)
    assert done.returncode == 0
    assert done.stdout == "goes on 143\n"
