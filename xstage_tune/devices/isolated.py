"""A device in a process of its own: whatever a launch does to it, this process and the next launch are whole.

A kernel variant may crash the compiler, break the GPU's context for good, or never end. So launches run in a
worker, one at a time, each with a deadline. Where the worker may be the worse for it, it is killed, and
another is begun before the next launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from xstage_tune.base.errors import ContextError, DeadlineError, DeviceError, DeviceLost, XStageError
from xstage_tune.base.number_format import duration
from xstage_tune.devices.worker import BEGIN_S, NO_ANSWER, Worker
from xstage_tune.launches.device import Device, DeviceDescription, Outcome

#: A launch's, its compilation included where that was not done before.
DEFAULT_DEADLINE_S = 120.0
#: A worker that cannot be begun is tried again, once, before the device counts as lost.
_ATTEMPTS = 2
#: What a launch may fail with that leaves its process as it was.
_HARMLESS = frozenset({"compile", "unusable", "incorrect", "unstable"})


class IsolatedDevice:
    """A device that runs each launch in a worker process.

    Args:
        open_device: opens the device in the worker; it is pickled.
        deadline_s: of one launch.

    Raises:
        XStageError: whatever ``open_device`` raises.
    """

    def __init__(self, open_device: Callable[[], Device], deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        self._open_device, self._deadline_s = open_device, deadline_s
        self._label = ""
        self._worker: Worker | None = None
        self.identity, self.kinds, self._description = self._begin()
        #: Workers that were replaced.
        self.replaced = 0

    def describe(self) -> DeviceDescription:
        """See :class:`~xstage_tune.launches.device.Device`."""
        return self._description

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.launches.device.Device`."""
        self._label = run_id
        if self._worker is not None:
            self._worker.ask(_label, run_id, timeout_s=self._deadline_s)

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Device`.

        Raises:
            ContextError: the launch ended the worker.
            DeadlineError: it did not end in time.
            DeviceLost: no worker can be begun any more.
            XStageError: what the device raised; another exception of its as a :class:`ContextError`.
        """
        for launch in launches:
            yield self._run(launch)

    def close(self) -> None:
        """End the worker; safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            worker.ask(_close, timeout_s=BEGIN_S)
        except (*NO_ANSWER, XStageError, KeyboardInterrupt):  # it goes either way
            worker.kill()
        else:
            worker.end()

    def _run(self, launch: Any) -> Outcome[Any, Any]:
        worker = self._worker or self._begin_again()
        whole = False
        try:
            outcome = worker.ask(_run, launch, timeout_s=self._deadline_s)
            whole = True
        except TimeoutError:
            raise DeadlineError(f"it did not end within {duration(1e9 * self._deadline_s)}") from None
        except BrokenProcessPool:
            raise ContextError("its process ended without an answer") from None
        except XStageError as error:
            whole = error.fault in _HARMLESS
            raise
        finally:
            if not whole:
                worker.kill()
                self._worker = None
        return outcome

    def _begin(self) -> tuple[str, tuple[str, ...], DeviceDescription]:
        """A worker with the device open; what the device is."""
        worker = None
        try:
            worker = Worker()
            opened = worker.ask(_open, self._open_device, self._label, timeout_s=BEGIN_S)
        except BaseException as error:
            if worker is not None:
                worker.kill()
            if isinstance(error, NO_ANSWER):
                raise DeviceError("a process for the device does not begin", "try again") from None
            raise
        self._worker = worker
        return opened

    def _begin_again(self) -> Worker:
        self.replaced += 1
        for _ in range(_ATTEMPTS):
            try:
                self._begin()
            except XStageError as error:
                reason = error.message
            if self._worker is not None:
                return self._worker
        raise DeviceLost(f"{self.identity} is lost: {reason}", "xstage-tune doctor")


# In the worker.

_opened: list[Device] = []


def _open(open_device: Callable[[], Device], label: str) -> tuple[str, tuple[str, ...], DeviceDescription]:
    device = open_device()
    if label:
        device.label_launches(label)
    _opened.append(device)
    return device.identity, device.kinds, device.describe()


def _run(launch: Any) -> Outcome[Any, Any]:
    (outcome,) = _opened[0].run([launch])
    return outcome


def _label(run_id: str) -> None:
    _opened[0].label_launches(run_id)


def _close() -> None:
    _opened.pop().close()
