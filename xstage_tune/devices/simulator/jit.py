"""How the event loops are compiled, and where the machine code is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import platformdirs
from numba import config, njit

Function = TypeVar("Function", bound=Callable[..., Any])

numba_config: Any = config  # its settings are made at run time


def event_kernel(function: Function) -> Function:
    """Compile a function of an event loop to machine code, kept on disk.

    Such functions only read and write arrays that the caller holds: they allocate nothing, and keep and
    return no array. So they need no reference counts, which numba would otherwise update atomically for
    every array of a state tuple at every call: measured at 148 SMs, 0.6 instead of 15 million events/s.
    """
    options: dict[str, Any] = {"cache": True, "forceinline": True, "_nrt": False}
    users_choice = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = _CACHE_DIR
    try:
        compiled: Function = njit(**options)(function)
    finally:
        numba_config.CACHE_DIR = users_choice
    return compiled


def _cache_dir() -> str:
    """A folder for these very sources.

    numba renews a cached function when its own file changes, but not when a function of another file
    that was inlined into it does.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(numba_config.CACHE_DIR or platformdirs.user_cache_path("xstage-tune") / "numba")
    return str(base / digest.hexdigest()[:16])


_CACHE_DIR = _cache_dir()
