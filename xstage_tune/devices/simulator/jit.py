"""How the event loops are compiled, and where the machine code is kept."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit

from xstage_tune.devices.cuda.compiler import work_folder

Function = TypeVar("Function", bound=Callable[..., Any])

Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)

numba_config: Any = config  # its settings are made at run time


def event_kernel(function: Function) -> Function:
    """Compile a function of an event loop to machine code, kept on disk where that can be written.

    Such functions only read and write arrays that the caller holds: they allocate nothing, and keep and
    return no array. So they need no reference counts, which numba would otherwise update atomically for
    every array of a state tuple at every call: measured at 148 SMs, 0.6 instead of 15 million events/s.
    """
    options: dict[str, Any] = {"cache": _CACHE_DIR is not None, "forceinline": True, "_nrt": False}
    users_choice = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = _CACHE_DIR
    try:
        compiled: Function = njit(**options)(function)
    finally:
        numba_config.CACHE_DIR = users_choice
    return compiled


def run_compiled(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a compiled function from Python; Ctrl-C during the call ends it as it ends any other.

    A signal's exception that is raised while numba hands the arguments or the result over reaches the caller
    as a ``SystemError`` about a result with an exception set.

    Raises:
        KeyboardInterrupt: the user stopped the program.
    """
    try:
        return function(*arguments)
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def _cache_dir() -> str | None:
    """A folder for these very sources: below ``$NUMBA_CACHE_DIR``, else below the tool's own cache folder.

    numba renews a cached function when its own file changes, but not when a function of another file
    that was inlined into it does.

    None where the folder cannot be written: then every process compiles anew, and a warning says so.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    folder = Path(numba_config.CACHE_DIR or work_folder() / "numba") / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _LOG.warning(
            "the simulator is compiled anew each time: %s; set XSTAGE_CACHE_DIR to a writable folder", error
        )
        return None
    return str(folder)


_CACHE_DIR = _cache_dir()
