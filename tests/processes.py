"""A command in a process of its own, for what cannot be done to the test's: stopping it, filling its disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from xstage_tune.base.errors import UsageError
from xstage_tune.store.facade import Store


def start(module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """``python -m module arguments`` in the checkout, its output piped."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_launches(store: Path, count: int) -> None:
    """Until the last run of a store has so many launches."""
    _wait_for(store, count, "launches", lambda opened: opened.launches(opened.run().id))


def wait_for_trials(store: Path, count: int) -> None:
    """Until the last study of a store has so many trials."""
    _wait_for(store, count, "trials", lambda opened: opened.studies.trials(opened.studies.get().id))


def _wait_for(store: Path, count: int, what: str, kept: Callable[[Store], Sequence[object]]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if store.exists():
            with Store.open(store) as opened, suppress(UsageError):  # nothing was begun yet
                if len(kept(opened)) >= count:
                    return
        time.sleep(0.05)
    raise AssertionError(f"no {count} {what} in {store}")


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt
