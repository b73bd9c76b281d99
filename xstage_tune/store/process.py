"""Which process writes a run or holds a study, and whether it is known to have ended."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, told apart from a later one with the same number.

    The last three are known on Linux only; elsewhere they are empty and zero.
    """

    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    start_ticks: int  # clock ticks from boot to the start of the process


def current_process() -> ProcessIdentity:
    """Identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), pid, _boot_id(), _pid_namespace(), _start_ticks(pid) or 0)


def has_ended(process: ProcessIdentity) -> bool:
    """True only when ``process`` certainly runs no more."""
    if not can_be_seen(process):
        return False
    if process.boot_id != _boot_id():
        return True
    if process.start_ticks:
        return _start_ticks(process.pid) != process.start_ticks
    return not _pid_exists(process.pid)


def can_be_seen(process: ProcessIdentity) -> bool:
    """Whether this process can tell that ``process`` runs.

    Not on another host, nor in another container of this boot: process numbers there mean something else.
    """
    if process.host != socket.gethostname():
        return False
    return process.boot_id != _boot_id() or process.pid_namespace == _pid_namespace()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """Start time of a live process from proc(5) stat; None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before may hold spaces and parentheses
    return None if state in "ZX" else int(rest[18])


def _pid_exists(pid: int) -> bool:
    if os.name != "posix":
        return True  # unknown, and signal 0 would be a real event there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
