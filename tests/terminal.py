"""Commands as they look in a terminal."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl


def in_terminal(arguments: tuple[str, ...], width: int) -> str:
    """What a command of ours writes to a terminal of ``width`` columns, without colours."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        (sys.executable, "-m", "xstage_tune", *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm"},
    ):
        os.close(theirs)
        written = b"".join(_parts(ours))
    os.close(ours)
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", written).decode().replace("\r\n", "\n")


def _parts(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the command has closed its end
            return
        if not part:
            return
        yield part
