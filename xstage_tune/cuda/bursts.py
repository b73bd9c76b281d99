"""Launching the burst kernels: arguments in, decoded spans out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cuda.core import Device, Kernel, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanTable, decode_records
from xstage_tune.cuda.destination import Destination, RingLayout
from xstage_tune.cuda.driver import START, launch, synchronize
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.launches.bursts import BurstPoint

THREADS = 256
PIECE_BYTES = 4096
VECTOR_BYTES = 16
#: Allowance beyond a point's own duration: arrival of all producers, start delay, flush of the records.
_LAUNCH_TIMEOUT_S = 5.0

#: The structs of ``kernels/calibration/bursts.cu``.
BURST_ARGUMENTS = np.dtype(
    [
        ("destination", "<u8"),
        ("ring_bytes", "<u8"),
        ("spacing_ns", "<u8"),
        ("window_ns", "<u8"),
        ("control", "<u8"),
        ("lanes", "<u8"),
        ("spans", "<u8"),
        ("burst_bytes", "<u4"),
        ("bursts", "<u4"),
        ("nonce", "<u4"),
        ("span_capacity", "<u4"),
        ("gap_cycles", "<u4"),
        ("producers", "<u4"),
        ("first_slot", "<u4"),
        ("padding", "<u4"),
        ("idle_sms", "<u8", (4,)),
    ]
)
FAULT = np.dtype([(name, "<u4") for name in ("raised", "producer", "expected", "seen")])
CONTROL = np.dtype([("start", START), ("fault", FAULT)])


def check_point(point: BurstPoint, sm_count: int) -> None:
    """Refuse a point that the kernels cannot run.

    Raises:
        UsageError: producers outside 1..``sm_count``, a burst that is no multiple of 16 bytes, or a duration
            of nothing.
    """
    if not 1 <= point.producers <= sm_count:
        raise UsageError(
            f"{point.producers} producers do not fit a GPU of {sm_count} SMs (one producer an SM)",
            f"use 1 to {sm_count} producers",
        )
    active = sm_count - len(set(point.idle_sms))
    if point.idle_sms and (point.producers != active or not set(point.idle_sms) <= set(range(sm_count))):
        raise UsageError(
            f"{point.producers} producers and idle SMs {point.idle_sms} do not make {sm_count} SMs",
            "name each idle SM once, and have a producer on every other",
        )
    if point.burst_bytes < VECTOR_BYTES or point.burst_bytes % VECTOR_BYTES:
        raise UsageError(
            f"burst of {point.burst_bytes} bytes is not a positive multiple of {VECTOR_BYTES}",
            "choose another burst size",
        )
    if point.gap_ns < 0 or (point.window_ns if point.mode == "periodic" else point.bursts) <= 0:
        raise UsageError(f"a {point.mode} point needs a gap >= 0 and a positive length, got {point}", "")


@dataclass(frozen=True, slots=True)
class BurstKernels:
    """The entry points of one store flavour, loaded."""

    periodic: Kernel
    isolated: Kernel


class BurstLauncher:
    """Holds the buffers that a launch records into; one per device.

    Args:
        device: the sender, current in the calling thread.
        shared_bytes: dynamic shared memory of a launch. As large as the SM allows, so that there is room for
            the records and no second CTA fits beside the first: one producer an SM.
    """

    def __init__(self, device: Device, stream: Stream, shared_bytes: int) -> None:
        self._stream = stream
        self.shared_bytes = shared_bytes
        self._sm_count = int(device.properties.multiprocessor_count)
        self._clock_mhz = int(device.properties.clock_rate) / 1000
        self.span_capacity = (shared_bytes - PIECE_BYTES) // RECORD_DTYPE.itemsize
        self._control = GpuMemory(device, CONTROL.itemsize, device)
        self._lanes = GpuMemory(device, self._sm_count * LANE_DTYPE.itemsize, device)
        span_bytes = self._sm_count * self.span_capacity * RECORD_DTYPE.itemsize
        self._spans = GpuMemory(device, span_bytes, device)

    def run(
        self,
        kernels: BurstKernels,
        point: BurstPoint,
        destination: Destination,
        layout: RingLayout,
        nonce: int,
    ) -> SpanTable:
        """Launch one point and wait for it.

        Raises:
            UsageError: the kernels cannot run the point.
            DeviceError: the launch failed, hung, or its producers did not all start.
        """
        check_point(point, self._sm_count)
        arguments = self._arguments(point, destination, layout, nonce)
        self._control.fill_zero(self._stream)
        launch(
            kernels.periodic if point.mode == "periodic" else kernels.isolated,
            self._stream,
            grid=(point.producers + len(point.idle_sms), 1),
            threads=THREADS,
            shared_bytes=self.shared_bytes,
            arguments=arguments,
            cooperative=True,
        )
        duration_ns = point.window_ns + point.gap_ns * max(point.bursts, 1)
        synchronize(self._stream, _LAUNCH_TIMEOUT_S + duration_ns * 1e-9, "a burst kernel")
        self._raise_fault()
        return self._decode(point.producers)

    def close(self) -> None:
        """Free the buffers."""
        for memory in (self._control, self._lanes, self._spans):
            memory.close()

    def _arguments(
        self, point: BurstPoint, destination: Destination, layout: RingLayout, nonce: int
    ) -> NDArray[np.void]:
        arguments = np.zeros(1, BURST_ARGUMENTS)
        arguments["destination"] = destination.address
        arguments["ring_bytes"] = layout.ring_bytes
        arguments["first_slot"] = layout.first_slot
        arguments["spacing_ns"] = point.gap_ns if point.mode == "isolated" else 0
        arguments["window_ns"] = point.window_ns
        arguments["control"] = self._control.address
        arguments["lanes"] = self._lanes.address
        arguments["spans"] = self._spans.address
        arguments["burst_bytes"] = point.burst_bytes
        arguments["bursts"] = point.bursts
        arguments["nonce"] = nonce
        arguments["span_capacity"] = self.span_capacity
        arguments["producers"] = point.producers
        for sm_id in point.idle_sms:
            arguments["idle_sms"][0, sm_id // 64] |= np.uint64(1 << sm_id % 64)
        # At the nominal clock: the realised gap is what the spans say.
        arguments["gap_cycles"] = (
            round(point.gap_ns * self._clock_mhz / 1000) if point.mode == "periodic" else 0
        )
        return arguments

    def _raise_fault(self) -> None:
        control = np.zeros(1, CONTROL)
        self._control.read_into(control, self._stream)
        row = control[0]["fault"]
        if row["raised"]:
            raise DeviceError(
                f"producer {row['producer']} waited for {row['expected']} producers to start, "
                f"and saw {row['seen']}",
                "another process may hold SMs of this GPU (nvidia-smi shows it)",
            )

    def _decode(self, producers: int) -> SpanTable:
        lanes = np.zeros(producers, LANE_DTYPE)
        self._lanes.read_into(lanes, self._stream)
        longest = int(lanes["recorded"].max(initial=0))
        records = np.zeros((producers, longest), RECORD_DTYPE)
        if longest:
            self._spans.read_rows_into(records, self.span_capacity * RECORD_DTYPE.itemsize, self._stream)
        return decode_records(records, lanes)
