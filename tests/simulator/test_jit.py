"""Where the event loops' machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xstage_tune.simulator.jit import run_compiled
from xstage_tune.simulator.timers import new_timers

#: A loop and its step, as the simulator's but small, so that a test compiles little.
TINY_LOOP = """
from typing import NamedTuple
import numpy as np
from xstage_tune.simulator.jit import event_kernel, event_loop, run_compiled
from xstage_tune.simulator.state_pointer import pointer_to

class Counts(NamedTuple):
    counted: np.ndarray

@event_kernel
def count(counts, by):
    counts.counted[0] += by

@event_loop
def count_up(counts, times):
    counts = pointer_to(counts)
    for _ in range(times):
        count(counts, 2)
    return counts.counted[0]
"""


@pytest.fixture
def tiny_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ``tiny_loop.py``, which Python finds."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "tiny_loop.py").write_text(TINY_LOOP)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def run(cache: Path, program: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XSTAGE_CACHE_DIR"] = str(cache)
    program = program or "print(run_compiled(count_up, Counts(np.zeros(1, np.int64)), 3))"
    return subprocess.run(
        [sys.executable, "-c", f"from tiny_loop import *\n{program}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.usefixtures("tiny_loop")
def test_machine_code_is_kept_below_the_tools_cache_folder_and_not_compiled_again(tmp_path: Path) -> None:
    """Where progress is shown, compilation is announced; only where it happens."""
    call = "run_compiled(count_up, Counts(np.zeros(1, np.int64)), 3)"
    counted = f"print({call}, len(count_up.stats.cache_hits), count.signatures)"
    shown = f"""
from xstage_tune.report.progress import SweepProgress
with SweepProgress("searching"):
    {counted}
"""
    compiled, kept, elsewhere = (
        run(tmp_path / cache, program)
        for cache, program in (("one", counted), ("one", shown), ("another", shown))
    )
    (file,) = (tmp_path / "one").glob("numba/*/*/*.nbi")
    assert "count_up" in file.name
    assert compiled.stdout.startswith("6 0 ")
    assert compiled.stderr == ""
    assert kept.stdout == "6 1 []\n"
    assert "compiling" not in kept.stderr
    assert elsewhere.stdout == compiled.stdout
    assert "xstage-tune: compiling the simulator, once" in elsewhere.stderr.splitlines()


@pytest.mark.usefixtures("tiny_loop")
@pytest.mark.parametrize("below", ["file", "file/cache"])
def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    ran = run(tmp_path / below)
    assert ran.stdout == "6\n"
    assert ran.stderr.count("\n") == 1
    assert "compiled anew each time" in ran.stderr
    assert "set XSTAGE_CACHE_DIR to a writable folder" in ran.stderr


class Compiled:
    """A compiled function during whose call Ctrl-C comes, and Python gets a turn."""

    signatures = ("int64",)
    ended = False

    def __call__(self, value: int) -> int:
        signal.raise_signal(signal.SIGINT)
        self.ended = True
        return value


def test_ctrl_c_during_compiled_code_comes_out_behind_it() -> None:
    function = Compiled()
    with pytest.raises(KeyboardInterrupt):
        run_compiled(function, 1)
    assert function.ended


@pytest.mark.usefixtures("tiny_loop")
def test_ctrl_c_during_compilation_comes_out_between_two_passes() -> None:
    program = """
import signal
from numba.core.event import Listener, install_listener

class Passes(Listener):
    begun = 0
    def on_start(self, event):
        self.begun += 1
        if self.begun == 3:
            signal.raise_signal(signal.SIGINT)
    def on_end(self, event):
        pass

passes = Passes()
with install_listener("numba:run_pass", passes):
    try:
        run_compiled(count_up, Counts(np.zeros(1, np.int64)), 3)
    except KeyboardInterrupt:
        print(passes.begun, count_up.signatures)
"""
    ran = run(Path("/dev/null"), program)  # compiled anew
    assert ran.stdout in ("3 []\n", "4 []\n")


def test_timers_are_due_as_given_and_the_earliest_wins() -> None:
    timers = new_timers(np.array([5.0, np.inf, 4.0, 7.0, 4.0]))
    assert timers.when_ns[:5].tolist() == [5.0, np.inf, 4.0, 7.0, 4.0]
    assert np.isinf(timers.when_ns[5:]).all()
    assert timers.winner[1] == 2  # of those due together the lowest number
