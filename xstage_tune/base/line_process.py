"""A user's process that answers a line with a line, and can be ended with all that it began.

It is somebody else's program: it may crash, hang, say something else, say too much, or leave children behind.
Each of these is told by an error of its own, after which the process is gone, its children too.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from xstage_tune.base.errors import ContextError, DeadlineError, DeviceError
from xstage_tune.base.number_format import duration
from xstage_tune.base.text import printable

#: Of an answer; 100,000 samples take a fifth of it.
MOST_BYTES = 8 << 20
#: By which whatever the process begins is found, even what has left its session.
_MARK = "XSTAGE_OF_PROCESS"
#: Of what it said on stderr, as errors quote it.
_TAIL_BYTES = 4096
_MOST_QUOTED = 200
_READ_BYTES = 1 << 16
#: Between looks at whether it still runs, while it says nothing.
_LOOK_S = 0.1
#: Of linux/prctl.h. The library is found before any fork: what runs between that and exec must be little.
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
#: For it to end by itself once its standard input has.
_END_S = 2.0


class LineProcess:
    """One process at a time, begun when it is asked something.

    Args:
        command: the program and its arguments.
        folder: where it runs.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = tuple(command), folder
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""
        self._said = b""
        #: Of the process that runs.
        self.answers = 0

    def ask(self, line: str, deadline_s: float) -> str:
        """The line that it answers; nothing may be between the two.

        Raises:
            DeviceError: it cannot be begun.
            ContextError: it ended without an answer, or said what is no line of an answer.
            DeadlineError: it did not answer in time.
        """
        process = self._running()
        whole = False
        try:
            answer = self._exchanged(process, line.encode() + b"\n", deadline_s)
            whole = True
            self.answers += 1
            return answer
        finally:
            if not whole:  # whatever happened, Ctrl-C too: question and answer are out of step
                self.kill()

    def close(self) -> None:
        """End it, and what it left behind; safe to call twice."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        self.kill()

    def kill(self) -> None:
        """End it and all that it began, whatever they do; safe to call twice."""
        process, self._process, self.answers = self._process, None, 0
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in _marked(self._mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        """The process; another one in place of one that ended meanwhile, or said what nobody asked for."""
        if self._process is not None and (self._process.poll() is not None or self._has_said_more()):
            self.kill()
        if self._process is None:
            self._mark, self._said = uuid.uuid4().hex, b""
            try:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=os.environ | {_MARK: self._mark, "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C is for this program, which then ends it
                    preexec_fn=_end_with_parent,
                )
            except OSError as error:
                raise DeviceError(
                    f"'{self._command[0]}' does not start in {self._folder}: {error.strerror}",
                    "check the command of the space",
                ) from None
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
        return self._process

    def _has_said_more(self) -> bool:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.read(1) not in (None, b"")

    def _exchanged(self, process: subprocess.Popen[bytes], request: bytes, deadline_s: float) -> str:
        """Write the request while reading what comes: neither side may wait for the other's pipe."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        answer, until = bytearray(), time.monotonic() + deadline_s
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdin, selectors.EVENT_WRITE)
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            while b"\n" not in answer:
                left = until - time.monotonic()
                if left <= 0:
                    raise DeadlineError(
                        f"its process did not answer within {duration(1e9 * deadline_s)}{self._last_words()}"
                    )
                events = ready.select(min(left, _LOOK_S))
                if not events and process.poll() is not None:  # its children may hold its output open
                    raise ContextError(f"its process {self._end_of(process)}{self._last_words()}")
                for key, _ in events:
                    if key.fileobj is process.stdin:
                        try:
                            request = request[process.stdin.write(request) or 0 :]
                        except BrokenPipeError:  # it has ended, or will not listen: its stdout tells
                            request = b""
                        if not request:
                            ready.unregister(process.stdin)
                        continue
                    data = os.read(key.fd, _READ_BYTES)
                    if key.fileobj is process.stderr:
                        self._said = (self._said + data)[-_TAIL_BYTES:]
                        if not data:
                            ready.unregister(process.stderr)
                    elif data:
                        answer += data
                        if len(answer) > MOST_BYTES:
                            raise ContextError(
                                f"its process said more than {MOST_BYTES >> 20} MiB in one line: "
                                f"{_quoted(bytes(answer))}"
                            )
                    else:
                        raise ContextError(f"its process {self._end_of(process)}{self._last_words()}")
        line, _, rest = bytes(answer).partition(b"\n")
        if rest:
            raise ContextError(f"its process said more than one line: {_quoted(rest)}")
        return line.decode(errors="replace")

    def _end_of(self, process: subprocess.Popen[bytes]) -> str:
        try:
            code = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "closed its output without an answer"
        if code < 0:
            return f"was ended by signal {-code} ({_signal_name(-code)}) without an answer"
        return f"exited with {code} without an answer"

    def _last_words(self) -> str:
        """The last line of stderr, as far as it was read."""
        process = self._process
        if process is not None and process.stderr is not None:
            with suppress(OSError):
                self._said = (self._said + (process.stderr.read(_READ_BYTES) or b""))[-_TAIL_BYTES:]
        lines = self._said.decode(errors="replace").strip().splitlines()
        return f"; its last words: {_cut(lines[-1])}" if lines else ""


def _end_with_parent() -> None:
    """In the process, before its program: whoever is killed leaves none behind that keeps the GPU."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _marked(mark: str) -> Iterator[int]:
    """Processes that have the mark in their environment, which children inherit."""
    wanted = f"{_MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _quoted(said: bytes) -> str:
    return f"'{_cut(said[: 4 * _MOST_QUOTED].decode(errors='replace'))}'"


def _cut(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MOST_QUOTED else f"{line[:_MOST_QUOTED]}..."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
