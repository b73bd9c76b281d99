"""The program: runs the command line, and turns however it ends into one line and an exit code."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from xstage_tune.base import interrupts
from xstage_tune.base.errors import DeviceError, ExitCode, XStageError
from xstage_tune.base.redaction import redacted
from xstage_tune.base.text import printable

if TYPE_CHECKING:
    from typing_extensions import Buffer


def entry() -> NoReturn:
    """The program: a reader that closes its pipe ends it, as it ends any other."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _open_stderr()
    if sys.stdout is None:  # closed by the shell: there is nowhere to put a result
        report_error(DeviceError("standard output is closed", "redirect it to a file, or to /dev/null"))
        sys.exit(ExitCode.ENVIRONMENT)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be text
    _log_to_stderr()
    interrupts.listen()
    try:
        main()
    except KeyboardInterrupt:  # behind the command, on the way out
        sys.exit(interrupts.exit_code())
    finally:
        interrupts.finish()


class _Unfailing(io.FileIO):
    """A file to which nothing need be written: what it cannot take is lost."""

    def write(self, data: Buffer, /) -> int:
        with suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def _open_stderr() -> None:
    """Let no message change how the program ends: where stderr is full or closed, it is lost.

    Of closed streams Python makes None, with which ``print`` writes to stdout; and the next file that is
    opened would take their number, and what C libraries write there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    raw = io.BufferedWriter(_Unfailing(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


class _Formatter(logging.Formatter):
    """Log lines as the command's own, without passwords."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(redacted(super().format(record)))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("xstage-tune: %(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.addLevelName(logging.WARNING, "warning")


def main() -> NoReturn:
    """Run the command line; every failure becomes one line on stderr and an exit code."""
    try:
        code = _run()
        sys.stdout.flush()
    except XStageError as error:
        report_error(error)
        code = error.exit_code
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        report_error(
            DeviceError(f"the system refused{where}: {error.strerror}", "free the disk, or see its owner")
        )
        code = ExitCode.ENVIRONMENT
    except Exception as error:
        if os.environ.get("XSTAGE_DEBUG"):
            raise
        code = _interrupted() if interrupts.asked_to_stop() else _internal(error)
    sys.exit(interrupts.exit_code() if interrupts.asked_to_stop() else code)


def _run() -> int:
    """Exit code of the command; typer ends every command by ``SystemExit``."""
    try:
        from xstage_tune.commands._app import app  # takes tenths of a second, in which Ctrl-C may come

        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    return _interrupted() if code == ExitCode.INTERRUPTED else code


def _interrupted() -> int:
    print("xstage-tune: interrupted", file=sys.stderr)
    return ExitCode.INTERRUPTED


def _internal(error: Exception) -> int:
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's and platformdirs'
        report_error(no_home := DeviceError("no home folder is known, and this needs one", "set HOME"))
        return no_home.exit_code
    message = f"internal error: {type(error).__name__}: {error}"
    report_error(XStageError(message, "XSTAGE_DEBUG=1 shows where; please report it"))
    return ExitCode.INTERNAL


def report_error(error: XStageError) -> None:
    """Print an error as users see it: what and where, each on a line of its own, then what to do."""
    for message in (error.message, *error.others):
        print(f"xstage-tune: error: {message}", file=sys.stderr)
    if error.hint:
        print(f"  try: {error.hint}", file=sys.stderr)
