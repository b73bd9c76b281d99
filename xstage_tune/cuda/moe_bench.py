"""The fused MoE kernel as a search runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.errors import FindingError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import synchronize
from xstage_tune.cuda.fused_kernel import KernelBench, LoadedKernel, PreparedKernel, TileSpansOfLaunch
from xstage_tune.cuda.fused_loading import ARCHITECTURE
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.moe_buffers import MoeBuffers
from xstage_tune.cuda.moe_kernel import PACE, MegaMoe, require_usable
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.moe_variants import KERNEL, moe_variant
from xstage_tune.cuda.sources import MEGAMOE_SOURCE
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.built import SHARED_BYTES_LIMIT, shared_bytes
from xstage_tune.families.megamoe.check import complaint
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.spans import moe_spans
from xstage_tune.families.megamoe.workload import MoeWorkload

#: A launch computes at no less than this rate, and stores no slower.
_LEAST_FLOP_PER_S = 20e12
_LEAST_BYTES_PER_S = 1e9
_START_TIMEOUT_S = 10.0
#: The launch whose spans are read is the last of so many back to back.
_LAUNCHES_TO_RECORD = 3


class MoeKernel:
    """See :class:`~xstage_tune.cuda.fused_kernel.FusedKernel`."""

    sources = (MEGAMOE_SOURCE,)
    architecture = ARCHITECTURE

    def variants(
        self, workload: MoeWorkload, config: MegaMoeConfig, *, spans: bool
    ) -> Sequence[KernelVariant]:
        """The kernel itself first."""
        precision = workload.precision
        recording = [moe_variant(config, precision, record_spans=True)] if spans else []
        return moe_variant(config, precision), *recording

    def require_usable(self, config: MegaMoeConfig, compiled: CompiledKernel) -> None:
        """Spills and serialised products."""
        require_usable(compiled, config)

    def open(self, gpu: Gpu, workload: MoeWorkload, path: StorePath) -> KernelBench:
        """Operands, and destinations of all ranks."""
        return MoeBench(gpu, workload, path)


def prepare_moe(
    gpu: Gpu,
    buffers: MoeBuffers,
    config: MegaMoeConfig,
    *,
    local: bool = False,
    record_spans: bool = False,
    pace: float = PACE,
) -> LoadedKernel[MegaMoe]:
    """The kernel of a config with its arguments.

    Args:
        local: with destinations that are all in the GPU's own memory.
        record_spans, pace: see :class:`~xstage_tune.cuda.moe_kernel.MegaMoe`.

    Raises:
        UsageError, UnusableKernelError, DeviceError: as :meth:`~.fused_kernel.KernelBench.prepare`.
    """
    with ExitStack() as opened:
        kernel = MegaMoe(gpu.device, buffers.shape, config, record_spans=record_spans, pace=pace)
        opened.callback(kernel.close)
        prepared = kernel.prepare(buffers.tensors(config.block_m, local=local))
        opened.pop_all()
    shared = shared_bytes(config, buffers.shape.precision)
    return LoadedKernel(
        gpu,
        kernel,
        prepared,
        name=f"{'local' if local else 'fused'}[{config.label}]",
        entry=KERNEL,
        shared_bytes=SHARED_BYTES_LIMIT if record_spans else shared,
        timeout_s=launch_timeout_s(buffers.shape),
    )


def launch_timeout_s(shape: MoeShape) -> float:
    """In which a launch surely ends."""
    return shape.flops / _LEAST_FLOP_PER_S + shape.rows * shape.row_bytes / _LEAST_BYTES_PER_S


class MoeBench:
    """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""

    def __init__(self, gpu: Gpu, workload: MoeWorkload, path: StorePath) -> None:
        self._gpu = gpu
        self._buffers = MoeBuffers(gpu, workload, path)

    def prepare(self, config: MegaMoeConfig, *, local: bool = False) -> PreparedKernel:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        return prepare_moe(self._gpu, self._buffers, config, local=local)

    def launch_on(
        self, kernel: PreparedKernel, inputs: int, trusted: PreparedKernel | None
    ) -> Callable[[], None]:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        assert isinstance(kernel, LoadedKernel)
        buffers, precision = self._buffers, self._buffers.shape.precision
        buffers.draw_tokens(inputs)
        expected = None if trusted is None else self._received_from(trusted)
        received = self._received_from(kernel)
        samples = buffers.sample(kernel.kernel.config.block_m)

        def compare() -> None:
            wrong = complaint(received, buffers.rows, samples, expected, precision)
            if wrong:
                raise FindingError(
                    f"the output of {kernel.name} is wrong: {wrong}",
                    "do not use this kernel; xstage-tune doctor tests each path",
                )

        return compare

    def spans(self, config: MegaMoeConfig) -> TileSpansOfLaunch | None:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        recording = prepare_moe(self._gpu, self._buffers, config, record_spans=True)
        try:
            for _ in range(_LAUNCHES_TO_RECORD):
                recording.queue()
            synchronize(
                self._gpu.stream,
                _START_TIMEOUT_S + _LAUNCHES_TO_RECORD * recording.timeout_s,
                recording.name,
            )
            table = recording.kernel.read_spans(self._gpu.stream)
        finally:
            recording.close()
        if not len(table.spans) or table.dropped():
            return None
        spans = moe_spans(table)
        mainloops = len(spans.l1_ns) + len(spans.l2_ns)
        return TileSpansOfLaunch(
            mainloop_ns=float(spans.l1_ns.sum() + spans.l2_ns.sum()) / mainloops, stall_ns=spans.stall_ns
        )

    def close(self) -> None:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        self._buffers.close()

    def _received_from(self, kernel: PreparedKernel) -> tuple[Bits, ...]:
        """What the ranks have after one launch on poisoned destinations."""
        assert isinstance(kernel, LoadedKernel)
        self._buffers.poison()
        kernel.queue()
        synchronize(self._gpu.stream, _START_TIMEOUT_S + kernel.timeout_s, f"'{kernel.name}'")
        kernel.kernel.require_finished(self._gpu.stream)
        return self._buffers.received()
