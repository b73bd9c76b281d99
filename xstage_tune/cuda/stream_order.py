"""Work that has to go on in one order, whatever streams it is queued on."""

from __future__ import annotations

from cuda.bindings import driver

from xstage_tune.cuda.driver import check


class StreamOrder:
    """Keeps queued work in the order of the calls, on any streams, also while they are captured.

    A graph's launches cannot be ordered here: nobody says when it is replayed.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._last_captured: int | None = None
        self._event = check(driver.cuEventCreate(_UNTIMED), "make an event")

    def enter(self, stream: int, *, capturing: bool) -> None:
        """Order what is queued next on the stream of this handle behind what was before, on the last one.

        Raises:
            DeviceError: the driver refuses.
        """
        if capturing:
            last, self._last_captured = self._last_captured, stream
            if last is not None and last != stream and _same_capture(last, stream):
                self._put_behind(stream, last)
        elif stream != self._last:
            last, self._last = self._last, stream
            if last is not None:
                self._put_behind(stream, last)

    def _put_behind(self, stream: int, last: int) -> None:
        check(driver.cuEventRecord(self._event, driver.CUstream(last)), "record an event")
        check(driver.cuStreamWaitEvent(driver.CUstream(stream), self._event, 0), "wait for an event")


_UNTIMED = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)


def _same_capture(one: int, other: int) -> bool:
    return _capture_id(one) == _capture_id(other)


def _capture_id(stream: int) -> int | None:
    """Of the capture that the stream is in; None where it is in none."""
    result = driver.cuStreamGetCaptureInfo(driver.CUstream(stream))
    if result[0] or result[1] != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        return None
    return int(result[2])
