"""Power cuts, as an ext4 file system that is shut down without its log: what was not synced is gone.

Needs root and a loop device; :func:`why_not` says what is missing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.harness import BrokenError
from tests.fuzz.kills import TRIALS, Process, require_answer, require_kept, undisturbed
from tests.h200 import H200
from tests.store.bursts import make_burst
from xstage_tune.store.facade import Store
from xstage_tune.store.runs import _BATCH_LAUNCHES

#: ``EXT4_IOC_SHUTDOWN``, and its flag that leaves the journal unwritten.
_SHUTDOWN, _WITHOUT_LOG = 0x8004587D, 2
_IMAGE_BYTES = 24 << 20
_LAUNCHES = 200


@cache
def why_not() -> str:
    """What this machine lacks for power cuts; empty where it lacks nothing."""
    if os.geteuid() or not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        return "power cuts need root, mkfs.ext4 and loop devices"
    place = Path("/tmp") / f"power-cut-{os.getpid()}"
    try:
        with _disk(place) as disk:
            disk.mount()
            disk.cut()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no ext4 image can be mounted and shut down here: {error}"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return ""


def power_cuts(random: Random, folder: Path) -> None:
    """A search or a measurement on a disk whose power is cut at a random moment."""
    undisturbed()  # before the first fork
    with _disk(folder) as disk:
        disk.mount()
        store = disk.folder / random.choice(("store.db", "deeper/still/store.db"))
        match random.randrange(4):
            case 0:
                kept = _cut(random, disk, Process(store, _measuring("cuda")), _LAUNCHES)
                _require_launches(store, kept)
            case 1:
                kept = _cut(random, disk, Process(store, _measuring("simulator")), _LAUNCHES)
                _require_launches(store, kept - _BATCH_LAUNCHES)
            case _:
                kept = _cut(random, disk, Process(store), TRIALS)
                require_kept(store, kept, running=True)
                require_answer(store, Process(store).ended())


def _cut(random: Random, disk: _Disk, process: Process, most: int) -> int:
    """Cut the power while a process works, or just behind what it said; gives what it had said to keep."""
    until = random.choice((0, random.randrange(most), most))
    if until:
        process.wait_for(until)
    time.sleep(random.random() * (0.02 if until else 0.6))
    # Nobody sees what a process says when the power is gone, and a sync that the cut overtakes may succeed:
    # the kernel drops the transaction, and then finds none to wait for.
    told = process.told()
    disk.cut()
    process.stop(signal.SIGKILL)
    process.ended()
    disk.unmount()
    disk.mount()
    return told


def _measuring(kind: str) -> Callable[[Path], int]:
    """A run that says the count of launches after each."""

    def measure(store: Path) -> int:
        device = replace(H200, kind=kind)
        with Store.open(store) as opened, opened.begin_run(kind="calibrate", argv=[], device=device) as run:
            for sequence in range(_LAUNCHES):
                run.add_launch(sequence, make_burst(sequence % 4))
                print(run.launches, flush=True)
        return 0

    return measure


def _require_launches(store: Path, told: int) -> None:
    """So many launches are there, with their spans, in a whole store."""
    if told <= 0 and not store.exists():
        return
    with Store.open(store, create=False) as opened:
        if problems := opened.check().problems:
            raise BrokenError(f"the store is damaged: {problems[0]}")
        kept = sum(len(opened.launches(run.id)) for run in opened.runs())
    if kept < told:
        raise BrokenError(f"{kept} launches of {told} are kept")


class _Disk:
    """An ext4 file system in a file."""

    def __init__(self, place: Path) -> None:
        self._image, self.folder = place / "disk.img", place / "disk"

    def make(self) -> None:
        self.folder.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def unmount(self) -> None:
        for _ in range(100):  # a process that was killed may still be on its way out
            if not os.path.ismount(self.folder):
                return
            if subprocess.run(["umount", str(self.folder)], capture_output=True, check=False).returncode:
                time.sleep(0.05)
        raise BrokenError(f"{self.folder} cannot be unmounted")

    def cut(self) -> None:
        """Nothing is written any more, not even the journal."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        finally:
            os.close(descriptor)


@contextmanager
def _disk(place: Path) -> Iterator[_Disk]:
    disk = _Disk(place)
    disk.make()
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
