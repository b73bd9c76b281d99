"""The fused attention as a search runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.errors import FindingError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.attention_buffers import AttentionBuffers
from xstage_tune.cuda.attention_kernel import AttentionA2A, require_usable
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import EPOCHS, KERNEL, attention_variant, shared_bytes, threads
from xstage_tune.cuda.compiler import CompiledKernel, UnusableKernelError
from xstage_tune.cuda.driver import synchronize
from xstage_tune.cuda.fused_kernel import KernelBench, LoadedKernel, PreparedKernel, TileSpansOfLaunch
from xstage_tune.cuda.fused_loading import ARCHITECTURE
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.sources import ATTENTION_SOURCE
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.check import (
    InputPool,
    Inputs,
    Ints,
    check_attention,
    check_like,
    complaint,
    sampled_tokens,
)
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.spans import tile_spans
from xstage_tune.families.attention_a2a.timing import ProfileCase, profile_case
from xstage_tune.families.attention_a2a.workload import AttentionWorkload

#: A launch computes at no less than this rate, and stores no slower.
_LEAST_FLOP_PER_S = 20e12
_LEAST_BYTES_PER_S = 1e9
_START_TIMEOUT_S = 10.0
#: The launch whose spans are read is the last of so many back to back.
_LAUNCHES_TO_RECORD = 3
_RANK = 0
_REGISTERS_PER_SM = 65_536


class AttentionKernel:
    """See :class:`~xstage_tune.cuda.fused_kernel.FusedKernel`."""

    sources = (ATTENTION_SOURCE,)
    architecture = ARCHITECTURE

    def variants(
        self, workload: AttentionWorkload, config: AttentionConfig, *, spans: bool
    ) -> Sequence[KernelVariant]:
        """The kernel itself first."""
        recording = [attention_variant(config, workload.head_dim, record_spans=True)] if spans else []
        return attention_variant(config, workload.head_dim), *recording, EPOCHS

    def require_usable(self, config: AttentionConfig, compiled: CompiledKernel) -> None:
        """Spills, serialised products, and more registers than an SM has for one CTA."""
        require_usable(compiled, config)
        needed = compiled.entries[KERNEL].registers * threads(config)
        if needed > _REGISTERS_PER_SM:
            raise UnusableKernelError(
                f"config {config.label} does not fit an SM: it needs {needed:,} registers of "
                f"{_REGISTERS_PER_SM:,}",
                "lower block_m",
            )

    def open(self, gpu: Gpu, workload: AttentionWorkload, path: StorePath) -> KernelBench:
        """Buffers of all ranks."""
        return AttentionBench(gpu, workload, path)


class AttentionBench:
    """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""

    def __init__(self, gpu: Gpu, workload: AttentionWorkload, path: StorePath) -> None:
        self._gpu, self._workload, self._path = gpu, workload, path
        size = (workload.tokens, workload.local_heads, workload.head_dim)
        self._shape = AttentionShape(*size, workload.degree, _RANK)
        self._alone = AttentionShape(*size)
        self._pool = InputPool(*size)
        # Buffers are the same for every config; a case has one.
        self._buffers: AttentionBuffers | None = None

    def prepare(self, config: AttentionConfig, *, local: bool = False) -> PreparedKernel:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        return self._prepare(config, local=local)

    def launch_on(
        self, kernel: PreparedKernel, inputs: int, trusted: PreparedKernel | None
    ) -> Callable[[], None]:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        assert self._buffers is not None
        drawn = self._pool.inputs(inputs)
        self._buffers.write_inputs(drawn)
        expected = None if trusted is None else self._output_of(trusted)
        self._buffers.poison_heads()
        output = self._output_of(kernel)
        tokens = sampled_tokens(self._workload.tokens, self._workload.degree, inputs)

        def compare() -> None:
            _require_right(kernel.name, output, drawn, tokens, expected)

        return compare

    def spans(self, config: AttentionConfig) -> TileSpansOfLaunch | None:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        recording = self._prepare(config, record_spans=True)
        try:
            for _ in range(_LAUNCHES_TO_RECORD):
                recording.queue()
            synchronize(self._gpu.stream, _START_TIMEOUT_S + recording.timeout_s, recording.name)
            table = recording.kernel.read_spans(self._gpu.stream)
        finally:
            recording.close()
        if not len(table.spans) or table.dropped():
            return None
        tiles = tile_spans(table, self._case(config), remote=True)
        ctas = len(table.lanes) / finishing_warpgroups(config)
        return TileSpansOfLaunch(
            mainloop_ns=float(tiles.q_loop_ns.mean()),
            stall_ns=float(tiles.staging_wait_ns.max(axis=1).sum()) / ctas,
        )

    def close(self) -> None:
        """See :class:`~xstage_tune.cuda.fused_kernel.KernelBench`."""
        if self._buffers is not None:
            self._buffers.close()
            self._buffers = None

    def _prepare(
        self, config: AttentionConfig, *, local: bool = False, record_spans: bool = False
    ) -> LoadedKernel[AttentionA2A]:
        case = self._case(config)
        if self._buffers is None:
            self._buffers = AttentionBuffers(self._gpu, case, self._shape, self._pool.inputs(0))
        buffers = self._buffers
        shape = self._alone if local else self._shape
        destinations = Destinations((buffers.output,)) if local else buffers.destinations
        with ExitStack() as opened:
            kernel = AttentionA2A(self._gpu.device, shape, config, record_spans=record_spans)
            opened.callback(kernel.close)
            prepared = kernel.prepare(*buffers.inputs, destinations)
            opened.pop_all()
        return LoadedKernel(
            self._gpu,
            kernel,
            prepared,
            name=f"{'local' if local else 'fused'}[{config.label}]",
            entry=KERNEL,
            shared_bytes=shared_bytes(config, self._workload.head_dim),
            timeout_s=case.flops / _LEAST_FLOP_PER_S + case.output_bytes / _LEAST_BYTES_PER_S,
        )

    def _case(self, config: AttentionConfig) -> ProfileCase:
        return profile_case("", self._workload, config, self._path, seed=0)

    def _output_of(self, kernel: PreparedKernel) -> Bits:
        """What one launch leaves with the ranks, ``[tokens, heads, head_dim]``."""
        assert self._buffers is not None
        kernel.queue()
        synchronize(self._gpu.stream, _START_TIMEOUT_S + kernel.timeout_s, f"'{kernel.name}'")
        return self._buffers.read_ranks(received=False)


def _require_right(name: str, output: Bits, inputs: Inputs, tokens: Ints, expected: Bits | None) -> None:
    """Some tokens against fp32, all against a kernel that was found right.

    Raises:
        FindingError: says where it is wrong.
    """
    checks = [check_attention(output, inputs, tokens)]
    checks += [] if expected is None else [check_like(output, expected)]
    for figures, found in checks:
        if wrong := complaint(figures, found):
            raise FindingError(
                f"the output of {name} is wrong: {wrong}; {found.mismatched_bytes:,} of "
                f"{found.checked_bytes:,} bytes",
                "do not use this kernel; xstage-tune doctor tests each path",
            )
