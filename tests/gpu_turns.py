"""Who may use the GPU while tests run in several processes: many at once, or one that times something.

Two kernels on one GPU at once take several times as long as each alone, so a test that asserts a time or a
ratio is marked ``gpu_alone``.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def locks_folder() -> Path:
    """Where the lock files of this user's tests are."""
    return Path(tempfile.gettempdir(), f"xstage-tune-tests-{os.getuid()}")


@contextmanager
def gpu_turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until the GPU is free, and hold it for this test: beside others of its kind, or ``alone``.

    All pass by the gate, and who waits for the GPU alone holds it. Else those that share the GPU would come
    before it for ever.
    """
    folder.mkdir(exist_ok=True)
    with (folder / "gate").open("w") as gate, (folder / "gpu").open("w") as gpu:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(gpu, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
