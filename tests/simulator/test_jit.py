"""Where the event loops' machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from xstage_tune.devices.simulator.jit import run_compiled
from xstage_tune.devices.simulator.timers import new_timers, set_timer

#: The smallest of the kernels, so that a test compiles little.
RUN_A_TIMER = """
from xstage_tune.devices.simulator.timers import new_timers, set_timer
timers = new_timers(1)
set_timer(timers, 0, 5.0)
print("ran")
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XSTAGE_CACHE_DIR"] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", RUN_A_TIMER], capture_output=True, text=True, check=False, env=environment
    )


def test_machine_code_is_kept_below_the_tools_cache_folder(tmp_path: Path) -> None:
    ran = run(tmp_path)
    assert (ran.stdout, ran.stderr) == ("ran\n", "")
    assert list(tmp_path.glob("numba/*/*/*.nbi"))


@pytest.mark.parametrize("below", ["file", "file/cache"])
def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    ran = run(tmp_path / below)
    assert ran.stdout == "ran\n"
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


def test_ctrl_c_during_compilation_comes_out_between_two_passes() -> None:
    program = """
import signal
from numba.core.event import Listener, install_listener
from xstage_tune.devices.simulator import jit
from xstage_tune.devices.simulator.timers import new_timers, set_timer

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
        jit.run_compiled(set_timer, new_timers(1), 0, 5.0)
    except KeyboardInterrupt:
        print(passes.begun, set_timer.signatures)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XSTAGE_CACHE_DIR": "/dev/null"},  # compiled anew
    )
    assert ran.stdout in ("3 []\n", "4 []\n")


def test_a_function_is_compiled_once_and_gives_its_result() -> None:
    timers = new_timers(2)
    run_compiled(set_timer, timers, 1, 5.0)
    signatures = list(set_timer.signatures)
    run_compiled(set_timer, timers, 0, 4.0)
    assert timers.when_ns.tolist() == [4.0, 5.0]
    assert set_timer.signatures == signatures
