"""What several processes of a test run need, made once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def one_at_a_time(file: Path) -> Iterator[None]:
    """A block in which one process is at a time, by a lock on ``file``."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def made_once(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder of that name, the same for all processes of a test run; one at a time is in the block.

    Whoever finds it without what is to be made makes it.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # has its own folder in that of the test run
        folder = folder.parent
    with one_at_a_time(folder / f"{name}.lock"):
        made = folder / name
        made.mkdir(exist_ok=True)
        yield made
