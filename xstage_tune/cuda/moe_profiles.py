"""A MoE layer under all schedules on one GPU, and without fusion."""

from __future__ import annotations

import time
from contextlib import ExitStack

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.spans import SpanTable
from xstage_tune.cuda.fused_kernel import LoadedKernel
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.moe_bench import launch_timeout_s, prepare_moe
from xstage_tune.cuda.moe_buffers import MoeBuffers
from xstage_tune.cuda.moe_kernel import PACE, MegaMoe
from xstage_tune.cuda.moe_serial import ACTIVATE, SERIAL_SOURCE, SerialMoe
from xstage_tune.cuda.profiles import LAUNCHES_TO_RECORD, REST_S, CudaProfiles, LaunchedKernel, PreparedCase
from xstage_tune.cuda.sources import MEGAMOE_SOURCE
from xstage_tune.families.megamoe.check import POISON_BITS, complaint, sample_error
from xstage_tune.families.megamoe.span_figures import layer_spans
from xstage_tune.families.megamoe.spans import LANES
from xstage_tune.families.megamoe.timing import (
    AT_ONCE,
    LAYERS,
    LOCAL,
    PRODUCTS,
    RECORDING,
    SERIAL,
    LayerCase,
    LayerLaunch,
    LayerOutcome,
)
from xstage_tune.families.profiled import MOST_SPANS, CheckFigures, sampled_ctas
from xstage_tune.launches.device import Outcome, Verification


class CudaLayers(CudaProfiles):
    """Runs MoE layers for a :class:`~xstage_tune.cuda.device.CudaDevice`."""

    kinds = (LAYERS,)
    sources = (MEGAMOE_SOURCE, SERIAL_SOURCE)

    def prepare(self, gpu: Gpu, case: LayerCase) -> PreparedLayer:
        """See :class:`~xstage_tune.cuda.profiles.CudaProfiles`."""
        return PreparedLayer(gpu, case)


class PreparedLayer(PreparedCase[LayerCase]):
    """See :class:`~xstage_tune.cuda.profiles.PreparedCase`."""

    def __init__(self, gpu: Gpu, case: LayerCase) -> None:
        with ExitStack() as opened:
            self._buffers = MoeBuffers(gpu, case.workload, case.path)
            opened.callback(self._buffers.close)
            super().__init__(gpu, case, launch_timeout_s(self._buffers.shape))
            self._buffers.draw_tokens(case.seed)
            fused = [one for one in case.timed if one not in (PRODUCTS, SERIAL)]
            self._kernels = {one: self._kernel(opened, one) for one in fused}
            self._serial: SerialMoe | None = None
            if case.serial:
                tensors = self._buffers.tensors(case.config.block_m)
                self._serial = SerialMoe(gpu, self._buffers.shape, tensors, case.config.block_m)
                opened.callback(self._serial.close)
            self._expected: tuple[Bits, ...] | None = None
            self._opened = opened.pop_all()

    def check(self, launch: LayerLaunch) -> LayerOutcome:
        """Run once on poisoned buffers and compare what the ranks received; the first schedule first.

        Raises:
            DeviceError: the launch failed.
        """
        implementation = launch.implementation
        self._buffers.poison()

        def run() -> None:
            self._queue(implementation)
            self._wait(implementation, 1)

        _, (info,) = self._measure([self._kernel_of(implementation)], "check", run)
        self._require_finished()
        figures, found = self._compared()
        return Outcome(launch, figures, info, found)

    def record(self, launch: LayerLaunch) -> LayerOutcome:
        """Spans of an implementation of :attr:`LayerCase.recorded`, after a rest.

        Raises:
            DeviceError: the launch failed.
        """
        implementation = launch.implementation
        with ExitStack() as opened:
            kernel = self._kernel(opened, implementation, record_spans=True)

            def run() -> SpanTable:
                for _ in range(LAUNCHES_TO_RECORD):
                    kernel.queue()
                self._wait(implementation, LAUNCHES_TO_RECORD)
                return kernel.kernel.read_spans(self._gpu.stream)

            time.sleep(REST_S)
            table, (info,) = self._measure([_launched(implementation, kernel)], "spans", run)
            kernel.kernel.require_finished(self._gpu.stream)
        figures = layer_spans(table, self._case.config_of(implementation).staging_depth)
        return Outcome(launch, figures, info, table=sampled_ctas(table, LANES, MOST_SPANS))

    def _free(self) -> None:
        self._opened.close()

    def _kernel(
        self, opened: ExitStack, implementation: str, *, record_spans: bool = False
    ) -> LoadedKernel[MegaMoe]:
        kernel = prepare_moe(
            self._gpu,
            self._buffers,
            self._case.config_of(implementation),
            local=implementation == LOCAL,
            record_spans=record_spans or implementation.endswith(RECORDING),
            # T_RS of the control is that of stores that leave at once.
            pace=0.0 if record_spans and implementation.endswith((AT_ONCE, LOCAL)) else PACE,
        )
        opened.callback(kernel.close)
        return kernel

    def _queue(self, implementation: str) -> None:
        if implementation in self._kernels:
            self._kernels[implementation].queue()
            return
        assert self._serial is not None, implementation
        if implementation == SERIAL:
            self._serial.queue()
        else:
            self._serial.queue_products()

    def _kernel_of(self, implementation: str) -> LaunchedKernel:
        if implementation in self._kernels:
            return _launched(implementation, self._kernels[implementation])
        assert self._serial is not None, implementation
        return LaunchedKernel(implementation, self._serial.loaded.compiled, ACTIVATE, 0, self._gpu.sm_count)

    def _require_finished(self) -> None:
        for kernel in self._kernels.values():
            kernel.kernel.require_finished(self._gpu.stream)

    def _compared(self) -> tuple[CheckFigures, Verification]:
        """What the last launch left."""
        buffers, case = self._buffers, self._case
        received = buffers.received()
        samples = buffers.sample(case.config.block_m)
        wrong = complaint(received, buffers.rows, samples, self._expected, buffers.shape.precision)
        error = max((sample_error(received, buffers.rows, sample) for sample in samples), default=None)
        if self._expected is None:
            self._expected = received
        unwritten = sum(int((bits == POISON_BITS).any(axis=1).sum()) for bits in received)
        checked_bytes = sum(bits.nbytes for bits in received)
        wrong_bytes = buffers.shape.row_bytes * max(1, unwritten) if wrong else 0
        return CheckFigures(error, wrong), Verification(checked_bytes, wrong_bytes)


def _launched(implementation: str, kernel: LoadedKernel[MegaMoe]) -> LaunchedKernel:
    name = f"{implementation}[{kernel.kernel.config.label}]"
    return LaunchedKernel(name, kernel.compiled, kernel.entry, kernel.shared_bytes, kernel.producers)
