"""Budgets and rules of the fused MoE kernel.

Tokens are the columns and weights the rows of the MMA (``D^T = W X^T``): small batches then waste columns in
steps of 8 or 16, not rows of 64 or 128.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from xstage_tune.families.architecture import Architecture
from xstage_tune.families.budget import Budget, Term, Violation
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.tiling import ROW_UNIT_BYTES
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.platforms.schema import Compute

#: Row of an operand buffer in shared memory: block_k is one or more of them.
OPERAND_SWIZZLE_BYTES = 128

#: Of the workload, so that a violation is one of every config.
ROW_LIMIT = "rows of 16 bytes"

_CTA_THREADS = 1024  # CUDA's most, on every architecture
_WARP_THREADS = 32
_WARPGROUP_THREADS = 128
_ACCUMULATOR_BYTES = 4
_PRODUCER_REGISTERS = 40  # of each thread of the TMA warpgroup after setmaxnreg
_EPILOGUE_REGISTERS = 64
_BOOKKEEPING_REGISTERS = 40  # addresses, loop state, scales in flight
_TENSOR_MEMORY_LANES = 128
_MBARRIER_BYTES = 8
#: Scheduler state, row counters in flight and the span recorder's slots.
_SCHEDULER_BYTES = 2048
#: One 4-byte group of block scales covers this much reduction depth of a row.
_SCALE_GROUP_DEPTH = 128


def megamoe_budgets(
    config: MegaMoeConfig, workload: MoeWorkload, architecture: Architecture, compute: Compute
) -> tuple[Budget, ...]:
    """Shared memory, where the accumulators live, and threads."""
    shared = Budget(
        "shared memory", "B", compute.shared_bytes_per_cta, _shared_terms(config, workload, architecture)
    )
    if architecture.tensor_memory:
        return shared, _tensor_memory(config, workload, compute), _threads(config, architecture)
    return shared, *_registers(config, workload, architecture, compute), _threads(config, architecture)


def stage_bytes(config: MegaMoeConfig, workload: MoeWorkload, architecture: Architecture) -> int:
    """Shared memory of one pipeline stage: both operands and their block scales."""
    tokens = config.block_m // architecture.cta_group
    # Weights narrower than a byte are widened to bytes on their way: the MMA reads them so.
    weight = max(1.0, workload.weight_bytes)
    operands = config.block_k * (tokens * workload.activation_bytes + config.block_n * weight)
    scales = 4 * (tokens + config.block_n) * ceil(config.block_k / _SCALE_GROUP_DEPTH)
    return int(operands) + (scales if workload.precision != "bf16" else 0)


def _math_warpgroups(config: MegaMoeConfig) -> int:
    """Warpgroups that share a tile's accumulators on Hopper."""
    return 1 if config.block_n <= 64 else 2


def megamoe_rules(
    config: MegaMoeConfig, workload: MoeWorkload, architecture: Architecture
) -> Iterator[Violation]:
    """Rules of shape: whole units of rows, and the instruction's own limits; tiles may be partial."""
    yield from _row_rules(workload)
    if config.block_k * workload.activation_bytes % OPERAND_SWIZZLE_BYTES:
        yield _mma_shape(
            f"block_k = {config.block_k} is no whole number of operand rows of {OPERAND_SWIZZLE_BYTES} bytes"
        )
    if config.block_n % architecture.mma_m:
        yield _mma_shape(
            f"block_n = {config.block_n} is not a multiple of the MMA's {architecture.mma_m} rows"
        )
    step = architecture.mma_n_step
    if config.block_m % step or config.block_m > architecture.mma_n_max:
        yield _mma_shape(
            f"block_m = {config.block_m} is not a multiple of {step} up to {architecture.mma_n_max}"
        )
    if config.epilogue_warps % 4:
        yield _mma_shape(f"epilogue_warps = {config.epilogue_warps} is not whole warpgroups of 4")
    wave = config.schedule.experts_per_wave
    if wave is not None and wave > workload.local_experts:
        yield Violation(
            "schedule", f"experts_per_wave = {wave} of {workload.local_experts} local experts",
            wave, workload.local_experts,
        )  # fmt: skip


def _row_rules(workload: MoeWorkload) -> Iterator[Violation]:
    """Rows of matrices that TMA reads and epilogues store, whatever the config: whole 16-byte units."""
    element_bytes = {
        "weights": workload.weight_bytes,
        "activations": workload.activation_bytes,
        "outputs": OUTPUT_BYTES,
    }
    rows = (
        ("hidden", workload.hidden, ("weights", "activations", "outputs")),
        ("intermediate", workload.intermediate, ("weights", "activations")),
    )
    for name, elements, matrices in rows:
        units = {matrix: ceil(ROW_UNIT_BYTES / element_bytes[matrix]) for matrix in matrices}
        matrix = max(units, key=lambda one: units[one])
        unit = units[matrix]
        if elements % unit:
            yield Violation(
                ROW_LIMIT,
                f"{name} = {elements}: a row of {workload.precision} {matrix} is no whole number of "
                f"{ROW_UNIT_BYTES}-byte units; pad it to {unit * ceil(elements / unit)}",
                hint="pad the matrices, with --set, or take another platform",
            )


def _shared_terms(
    config: MegaMoeConfig, workload: MoeWorkload, architecture: Architecture
) -> tuple[Term, ...]:
    # Tensor memory holds the tiles that wait; shared memory then only holds the one being stored.
    buffers = 1 if architecture.tensor_memory else config.staging_depth
    barriers = 2 * (config.pipeline_stages + config.staging_depth) * _MBARRIER_BYTES
    return (
        Term("operand stages", config.pipeline_stages * stage_bytes(config, workload, architecture)),
        Term("output staging", buffers * config.block_m * config.block_n * OUTPUT_BYTES),
        Term("barriers and scheduler", barriers + _SCHEDULER_BYTES),
    )


def _tensor_memory(config: MegaMoeConfig, workload: MoeWorkload, compute: Compute) -> Budget:
    accumulators = config.staging_depth * config.block_m * config.block_n * _ACCUMULATOR_BYTES
    # A column of scales serves 32 rows of all lanes; both operands keep one k-block of them.
    columns = ceil(config.block_n / 32) + ceil(config.block_m / 32)
    scales = columns * _TENSOR_MEMORY_LANES * _ACCUMULATOR_BYTES if workload.precision != "bf16" else 0
    terms = (Term("accumulators", accumulators), Term("block scales", scales))
    return Budget("tensor memory", "B", compute.tensor_memory_bytes_per_sm, terms)


def _registers(
    config: MegaMoeConfig, workload: MoeWorkload, architecture: Architecture, compute: Compute
) -> tuple[Budget, Budget]:
    groups = _math_warpgroups(config)
    accumulators = config.block_m * config.block_n // (_WARPGROUP_THREADS * groups)
    # FP8 accumulates with few bits on Hopper: partial sums are promoted into a second set.
    promotion = accumulators if workload.precision != "bf16" else 0
    thread_terms = (
        Term("accumulators", accumulators),
        Term("promotion", promotion),
        Term("bookkeeping", _BOOKKEEPING_REGISTERS),
    )
    thread = Budget("registers of a math thread", "registers", architecture.thread_registers, thread_terms)
    file_terms = (
        Term("math warpgroups", groups * _WARPGROUP_THREADS * 8 * ceil(thread.used / 8)),
        Term("TMA warpgroup", _WARPGROUP_THREADS * _PRODUCER_REGISTERS),
        Term("epilogue warps", config.epilogue_warps * _WARP_THREADS * _EPILOGUE_REGISTERS),
    )
    return thread, Budget("register file", "registers", compute.registers_per_sm, file_terms)


def _threads(config: MegaMoeConfig, architecture: Architecture) -> Budget:
    # With tensor memory one thread issues the MMA, of a warp beside that of the TMA.
    groups = 0 if architecture.tensor_memory else _math_warpgroups(config)
    terms = (
        Term("math warpgroups", groups * _WARPGROUP_THREADS),
        Term("TMA and MMA issue" if architecture.tensor_memory else "TMA warpgroup", _WARPGROUP_THREADS),
        Term("epilogue warps", config.epilogue_warps * _WARP_THREADS),
    )
    return Budget("threads of a CTA", "threads", _CTA_THREADS, terms)


def _mma_shape(message: str) -> Violation:
    return Violation("MMA shape", message)
