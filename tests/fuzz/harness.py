"""Runs inputs in this process and tells which broke what must hold: time, memory, and how a failure ends."""

from __future__ import annotations

import io
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from xstage_tune import cli
from xstage_tune.base import interrupts, progress
from xstage_tune.base.errors import ExitCode, XStageError
from xstage_tune.base.text import printable

#: Of processor time, on one input; and of waiting for anything.
MOST_SECONDS = 5.0
MOST_WAIT_SECONDS = 60.0
#: Beyond what the process holds before, which is 150 MB: 500 MB in all.
MOST_BYTES = 350e6
#: Ends what asks for more, before the machine suffers.
_MOST_ADDRESS_BYTES = 6 << 30

_ROOT = Path(__file__).parents[2]

#: What an input is made of and done with, in a folder of its own; raises only what users may see.
Target = Callable[[Random, Path], None]


class Hung(BaseException):
    """An input took longer than :data:`MOST_SECONDS`; not to be caught by what it is raised in."""


class BrokenError(AssertionError):
    """An input came through though something that must hold did not."""


@dataclass
class Tally:
    """What came of the inputs of one target.

    Args:
        peak_bytes: the most that the process held.
        most_bytes, most: the most that an input took beyond what was held before it, and which.
    """

    inputs: int = 0
    refused: int = 0
    findings: list[tuple[int, str]] = field(default_factory=list)
    peak_bytes: int = 0
    most_bytes: int = 0
    most: int = 0
    slowest_s: float = 0.0
    slowest: int = 0

    def by_kind(self) -> dict[str, int]:
        """How many findings begin alike."""
        return dict(Counter(text.splitlines()[0] for _, text in self.findings).most_common())


def run_input(target: Target, seed: int, number: int, tally: Tally) -> None:
    """Make input ``number`` of a seed, the same in every process, and count what comes of it."""
    random = Random(f"{target.__name__} {seed} {number}")
    held = memory_bytes("VmRSS")
    forget_peak()
    begun = time.process_time()
    finding = ""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with _limited(), chdir(folder):  # where a file goes that has no folder in its name
                target(random, Path(folder))
        except XStageError as error:
            tally.refused += 1
            lines = (error.message, error.hint, *error.others)
            if any(printable(line) != line for line in lines):
                finding = f"an error that is no printable line\n{lines}"
            elif error.exit_code is ExitCode.INTERNAL:
                finding = f"an internal error\n{error.message}"
        except (Exception, Hung) as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "xstage_tune" in frame.filename] or frames
            place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
            finding = f"{type(error).__name__} at {place}\n{''.join(traceback.format_exception(error))}"
    peak = memory_bytes("VmHWM")
    tally.peak_bytes = max(tally.peak_bytes, peak)
    if peak - held > tally.most_bytes:
        tally.most_bytes, tally.most = peak - held, number
    if peak - held > MOST_BYTES:
        finding = finding or f"memory over {MOST_BYTES / 1e6:.0f} MB\n{(peak - held) / 1e6:.0f} MB"
    seconds = time.process_time() - begun
    tally.inputs += 1
    if seconds > tally.slowest_s:
        tally.slowest_s, tally.slowest = seconds, number
    if finding:
        tally.findings.append((number, finding))


def command(*arguments: str) -> tuple[int, str, str]:
    """``xstage-tune`` with the given arguments in this process: its exit code, stdout and stderr.

    Raises:
        BrokenError: what it wrote may steer a terminal.
        Exception: what would be an internal error.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    progress._Told.quiet = False
    before, sys.argv = sys.argv, ["xstage-tune", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.argv = before
        signal.signal(signal.SIGINT, signal.default_int_handler)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    for text in texts:
        if any(printable(line) != line for line in text.split("\n")):
            raise BrokenError(f"a control character reaches the terminal of {arguments}")
    if code not in (*range(ExitCode.INTERNAL), ExitCode.INTERRUPTED) or interrupts.asked_to_stop():
        raise BrokenError(f"exit {code} of {arguments}: {texts[1]}")
    return code, texts[0], texts[1]


def program(*arguments: str) -> None:
    """``xstage-tune`` with the given arguments in a process of its own.

    Raises:
        BrokenError: it ends as no command may.
    """
    environment = {name: value for name, value in os.environ.items() if name != "XSTAGE_DEBUG"}
    call = [sys.executable, "-m", "xstage_tune", *arguments]
    done = subprocess.run(
        call, env={**environment, "PYTHONPATH": str(_ROOT)}, capture_output=True, timeout=60, check=False
    )
    if done.returncode not in range(ExitCode.INTERNAL) or b"Traceback" in done.stderr:
        raise BrokenError(f"exit {done.returncode} of {arguments}: {done.stderr.decode(errors='replace')}")


@contextmanager
def away_from_the_users_data() -> Iterator[None]:
    """A block whose commands keep their data in a folder that it removes."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as home:
        names = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XSTAGE_STORE", "XSTAGE_QUIET", "XSTAGE_DEBUG")
        before = {name: os.environ.get(name) for name in names}
        values = (f"{home}/data", os.environ.get("XDG_CACHE_HOME"), f"{home}/store.db", "1", "1")
        _set(dict(zip(names, values, strict=True)))
        try:
            logging.disable()
            yield
        finally:
            logging.disable(logging.NOTSET)
            _set(before)


def _set(environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def memory_bytes(name: str) -> int:
    """What this process holds (``VmRSS``), or the most that it held since :func:`forget_peak` (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def forget_peak() -> None:
    """Count the peak from here on."""
    Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hung

    limits = resource.getrlimit(resource.RLIMIT_AS)
    handlers = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESS_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, MOST_WAIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in handlers.items():
            signal.signal(number, handler)
