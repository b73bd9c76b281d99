"""How the event loops are compiled, and where the machine code is kept."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit, typeof
from numba.core.event import Event, Listener, install_listener

from xstage_tune.base.errors import UsageError
from xstage_tune.base.interrupts import held_back
from xstage_tune.base.progress import phase
from xstage_tune.base.user_folders import cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)

numba_config: Any = config  # its settings are made at run time
type_of: Callable[[object], object] = typeof


def event_loop(function: Function) -> Function:
    """Compile a function that Python calls, through :func:`run_compiled`; kept on disk where possible.

    With it all that it calls is compiled and kept: its steps, see :func:`event_kernel`.
    """
    users_choice = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = _CACHE_DIR
    try:
        return _compiled(function, cache=_CACHE_DIR is not None)
    finally:
        numba_config.CACHE_DIR = users_choice


def event_kernel(function: Function) -> Function:
    """Compile a step of an event loop into the loops that call it. Python must not call it: that crashes.

    What Python and C would need to call it, and a file of its own in the cache, took most of the time of a
    compilation. A loop hands its state to its steps by ``state_pointer.pointer_to``.
    """
    return _compiled(function, no_cpython_wrapper=True)


def _compiled(function: Function, **options: bool) -> Function:
    """A loop or a step, either of which only reads and writes arrays that its caller holds.

    It allocates, keeps and returns none, so it needs no reference counts, which numba would otherwise
    update atomically for every array of a state tuple at every call: at 148 SMs, 0.6 instead of 6 to 12
    million events/s.
    """
    chosen: dict[str, Any] = {"forceinline": True, "_nrt": False, "no_cfunc_wrapper": True, **options}
    compiled: Function = njit(**chosen)(function)
    return compiled


def run_compiled(function: Callable[..., Result], *arguments: object) -> Result:
    """Call an :func:`event_loop` from Python; Ctrl-C meanwhile comes out where that is safe.

    That is behind the run, which takes tenths of a second at most: numba hands arguments and results over in
    C code that no exception may come out of. The compilation before the first run takes ten seconds, so
    there it is between two of its passes: LLVM calls back into numba, which loses what is raised there, and
    the machine code with it.

    Raises:
        KeyboardInterrupt: the user stopped the program.
    """
    dispatcher: Any = function
    with held_back() as deliver:
        if not dispatcher.signatures:
            with (
                install_listener("numba:run_pass", _BeforeEach(deliver)),
                install_listener("numba:compile", _Announcement()),
            ):
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


class _Announcement(Listener):
    """Says that the simulator is compiled, while it is; machine code that was kept raises no such event."""

    def __init__(self) -> None:
        self._depth = 0
        self._said = ExitStack()

    def on_start(self, event: Event) -> None:  # noqa: ARG002 - numba's interface
        if self._depth == 0:
            activity = "compiling the simulator" + (", once" if _CACHE_DIR is not None else "")
            self._said.enter_context(phase(activity, at_once=True))
        self._depth += 1

    def on_end(self, event: Event) -> None:  # noqa: ARG002 - numba's interface
        self._depth -= 1
        if self._depth == 0:
            self._said.close()


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
