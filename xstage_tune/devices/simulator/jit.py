"""How the event loops are compiled, and where the machine code is kept."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit, typeof
from numba.core.event import Event, Listener, install_listener

from xstage_tune.errors import UsageError
from xstage_tune.interrupts import held_back
from xstage_tune.user_folders import cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)

numba_config: Any = config  # its settings are made at run time
type_of: Callable[[object], object] = typeof


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
    """Call a function of :func:`event_kernel` from Python; Ctrl-C meanwhile comes out where that is safe.

    That is behind the run, which takes tenths of a second at most: numba hands arguments and results over in
    C code that no exception may come out of. The compilation before the first run takes half a minute, so
    there it is between two of its passes: LLVM calls back into numba, which loses what is raised there, and
    the machine code with it.

    Raises:
        KeyboardInterrupt: the user stopped the program.
    """
    dispatcher: Any = function
    with held_back() as deliver:
        if not dispatcher.signatures:
            with install_listener("numba:run_pass", _BeforeEach(deliver)):
                dispatcher.compile(tuple(map(type_of, arguments)))
        return function(*arguments)


class _BeforeEach(Listener):
    """Does something before each event of numba's."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def on_start(self, event: Event) -> None:  # noqa: ARG002 - numba's interface
        self._action()

    def on_end(self, event: Event) -> None:
        """Nothing is done after it."""


def _cache_dir() -> str | None:
    """A folder for these very sources: below ``$NUMBA_CACHE_DIR``, else below the tool's own cache folder.

    numba renews a cached function when its own file changes, but not when a function of another file
    that was inlined into it does.

    None where the folder cannot be written: then every process compiles anew, and a warning says so.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    try:
        folder = Path(numba_config.CACHE_DIR or cache_folder() / "numba") / digest.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, UsageError) as error:
        _LOG.warning(
            "the simulator is compiled anew each time: %s; set XSTAGE_CACHE_DIR to a writable folder", error
        )
        return None
    return str(folder)


_CACHE_DIR = _cache_dir()
