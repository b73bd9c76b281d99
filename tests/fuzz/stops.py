"""Commands that are stopped at a chosen line of Python, from the program's first to the interpreter's last.

Whatever the line, a stop is told in a line at most, with its exit code, and leaves no run or study running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.harness import BrokenError
from tests.fuzz.stores import _store
from xstage_tune.store.facade import Store

ROOT = Path(__file__).parents[2]

#: Counts the program's lines and those of what it closes and ends by, and raises the signal at one.
_PROGRAM = """
import signal, sys
at, number, told, *sys.argv[1:] = sys.argv[1:]
at, number, seen = int(at), int(number), 0
places = "xstage_tune", "sqlalchemy/pool", "sqlalchemy/engine", "contextlib", "weakref", "threading", "signal"

def count(frame, event, _):
    global seen
    if event == "call" and not any(part in frame.f_code.co_filename for part in places):
        return None
    if event == "line":
        seen += 1
        if seen == at:
            sys.settrace(None)
            signal.raise_signal(number)
    return count

import atexit, threading
if told:
    atexit.register(lambda: open(told, "w").write(str(seen)))
signal.signal(signal.SIGINT, signal.SIG_DFL)  # as __main__ does it
from xstage_tune.cli import entry
sys.settrace(count)
entry()
"""
_COMMANDS = {
    "info": ("store", "info"),
    "list": ("store", "list"),
    "emulate": (
        *("emulate", "-w", "megamoe/glm-4.5", "-p", "h200-host", "--set", "tokens_per_rank=64"),
        *("--device", "simulator", "--repeats", "1"),
    ),
}


def stops(random: Random, folder: Path) -> None:
    """One command, stopped at one line."""
    name = random.choice(("info", "info", "list", "emulate"))
    file = folder / "store.db"
    file.write_bytes(_store()[0])
    number = random.choice((signal.SIGINT, signal.SIGTERM))
    lines = _lines_of(name)
    # Half of them in the last part, where the store closes and the interpreter ends.
    at = random.randint(1, lines) if random.random() < 0.5 else random.randint(int(lines * 0.97), lines)
    code, stderr = run(file, name, at, number)
    where = f"{name} stopped by {number.name} at line {at} of {lines}"
    if "Traceback" in stderr or "Exception ignored" in stderr:
        raise BrokenError(f"{where}\n{stderr}")
    if code not in (0, 128 + number, -number):
        raise BrokenError(f"{where}: exit {code}\n{stderr}")
    with Store.open(file) as store:
        left = [entry for entry in store.entries() if entry.state not in ("finished", "interrupted")]
        if left or store.check().problems:
            raise BrokenError(f"{where}: {left} {store.check().problems}")


def run(file: Path, name: str, at: int, number: int, told: str = "") -> tuple[int, str]:
    """Exit code and stderr of a command that is stopped at a line."""
    command = (sys.executable, "-c", _PROGRAM, str(at), str(int(number)), told, *_COMMANDS[name])
    environment = {**os.environ, "XSTAGE_STORE": str(file), "XSTAGE_DEBUG": "", "XSTAGE_QUIET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@cache
def _lines_of(name: str) -> int:
    """Lines that a command runs undisturbed."""
    file, told = Path("whole.db").absolute(), Path("lines").absolute()
    file.write_bytes(_store()[0])
    code, stderr = run(file, name, -1, 0, str(told))
    if code:
        raise BrokenError(f"{name} alone ends with {code}: {stderr}")
    return int(told.read_text())
