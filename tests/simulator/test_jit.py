"""Where the event loops' machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xstage_tune.devices.simulator.jit import run_compiled

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


def test_ctrl_c_during_compiled_code_is_ctrl_c() -> None:
    """What CPython makes of a signal's exception that a C function returned beside a result."""

    def interrupted(_: int) -> int:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stop:
            raise SystemError("returned a result with an exception set") from stop

    with pytest.raises(KeyboardInterrupt):
        run_compiled(interrupted, 1)


def test_another_system_error_stays_one() -> None:
    def broken() -> None:
        raise SystemError("bad argument to internal function")

    with pytest.raises(SystemError, match="bad argument"):
        run_compiled(broken)
