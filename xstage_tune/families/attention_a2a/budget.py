"""Budgets and rules of the fused FlashAttention."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from xstage_tune.families.architecture import Architecture
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.budget import Budget, Term, Violation
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.platforms.schema import Compute

_WARPGROUP_THREADS = 128
#: Of a tile that a consumer warpgroup computes.
WARPGROUP_ROWS = 64
_ACCUMULATOR_BYTES = 4
_PRODUCER_REGISTERS = 32
# Of a producer warpgroup whose other warps store the output. Beside two consumers the kernel gives it less,
# 24 or 40, which matters only to tiles that do not fit for other reasons.
_STORING_PRODUCER_REGISTERS = 56
# Row maxima and sums, addresses, loop state: with fewer the compiler spills (192x144, at 160 a thread).
_BOOKKEEPING_REGISTERS = 32
# Barriers, and the tiles that warps hand each other: ``kPipelineBytes`` of ``config.cuh``.
_BARRIER_BYTES = 1024
#: Head dims, and rows and KV rows of the tiles, that a family's kernel is built for, in
#: ``kernels/attention_a2a``. One consumer warpgroup (64 rows) would leave the Tensor Core idle in its
#: softmax. Of other families nothing is known.
BUILT_HEAD_DIMS = {"sm_90": (64, 128)}
BUILT_BLOCK_M = {"sm_90": (128, 192)}
BUILT_BLOCK_N = {"sm_90": tuple(range(64, 177, 16))}
BUILT_KV_SPLITS = {"sm_90": (1, 2)}
#: Of the workload, so that a violation is one of every config.
HEAD_DIM_LIMIT = "built head dims"
KV_SPLIT_LIMIT = "KV split"
SPLIT_TIMES_LIMIT = "split times"
_OUTPUT_BUFFERS = {"alias-q": 0, "alias-v": 0, "dedicated-x1": 1, "dedicated-x2": 2}


def staged_rows(config: AttentionConfig) -> int:
    """Query rows of a tile that one CTA stages and stores."""
    return config.block_m // config.kv_splits


def finishing_warpgroups(config: AttentionConfig) -> int:
    """Consumer warpgroups of a CTA that finish and store rows; each records spans, in a lane of its own."""
    return staged_rows(config) // WARPGROUP_ROWS


def attention_budgets(
    config: AttentionConfig, workload: AttentionWorkload, architecture: Architecture, compute: Compute
) -> tuple[Budget, ...]:
    """Shared memory, and where scores and output accumulate."""
    shared = Budget(
        "shared memory", "B", compute.shared_bytes_per_cta, shared_terms(config, workload.head_dim)
    )
    if architecture.tensor_memory:
        return shared, _tensor_memory(config, workload, compute)
    return shared, *_registers(config, workload, architecture, compute)


def attention_rules(
    config: AttentionConfig, workload: AttentionWorkload, architecture: Architecture
) -> Iterator[Violation]:
    """Rules of shape, what is built, and that an aliased output fits into the buffer that it takes over."""
    for limit, knob, value, built in (
        (HEAD_DIM_LIMIT, "head_dim", workload.head_dim, BUILT_HEAD_DIMS.get(architecture.name)),
        ("built tiles", "block_m", config.block_m, BUILT_BLOCK_M.get(architecture.name)),
        ("built tiles", "block_n", config.block_n, BUILT_BLOCK_N.get(architecture.name)),
    ):
        if built is not None and value not in built:
            choices = ", ".join(map(str, built))
            message = f"{knob} = {value}: the kernel of {architecture.name} is built for {choices}"
            nearest = min(built, key=lambda one: abs(one - value))
            every = limit == HEAD_DIM_LIMIT
            hint = f"--set head_dim={nearest}, or take another platform" if every else ""
            yield Violation(limit, message, value, nearest, hint)
    yield from _split_rules(config, workload, architecture)
    if config.block_m % architecture.mma_m:
        yield _mma_shape(
            f"block_m = {config.block_m} is not a multiple of the MMA's {architecture.mma_m} rows"
        )
    if config.block_n % 16 or config.block_n > architecture.mma_n_max:
        # 16 also is the depth of the second product, P V.
        yield _mma_shape(f"block_n = {config.block_n} is not a multiple of 16 up to {architecture.mma_n_max}")
    if config.output_staging == "alias-v" and config.block_m > config.kv_stages * config.block_n:
        rows = config.kv_stages * config.block_n
        yield Violation(
            "output staging",
            f"an output of {config.block_m} rows does not fit into V buffers of {rows}",
            config.block_m,
            rows,
        )


def _split_rules(
    config: AttentionConfig, workload: AttentionWorkload, architecture: Architecture
) -> Iterator[Violation]:
    """A split tile: each of its CTAs stores what one consumer warpgroup staged, while the other goes on."""
    if config.kv_splits == 1:
        return
    if config.kv_splits not in BUILT_KV_SPLITS.get(architecture.name, (1,)):
        yield Violation(
            KV_SPLIT_LIMIT, f"kv_splits = {config.kv_splits}: the kernel of {architecture.name} splits none"
        )
    if config.block_m != config.kv_splits * WARPGROUP_ROWS:
        rows = config.kv_splits * WARPGROUP_ROWS
        message = f"kv_splits = {config.kv_splits} needs block_m = {rows}, a consumer warpgroup for each CTA"
        yield Violation(KV_SPLIT_LIMIT, message, config.block_m, rows)
    if not config.hands_stores_over:
        message = f"kv_splits = {config.kv_splits} needs output_staging dedicated-x1 or dedicated-x2"
        yield Violation(KV_SPLIT_LIMIT, message)
    if workload.tokens <= config.block_n:
        message = f"{workload.tokens} KV rows are one tile of {config.block_n}, nothing to split"
        yield Violation(KV_SPLIT_LIMIT, message, config.block_n, workload.tokens - 1)


def shared_terms(config: AttentionConfig, head_dim: int) -> tuple[Term, ...]:
    """What takes a CTA's shared memory, in bytes."""
    row_bytes = head_dim * OUTPUT_BYTES
    # Of a split tile, what the other CTA has of these rows: unfinished, and 16 bytes for every two.
    partial_row_bytes = head_dim * _ACCUMULATOR_BYTES + 8 if config.kv_splits > 1 else 0
    return (
        Term("Q", config.block_m * row_bytes),
        Term("KV stages", 2 * config.kv_stages * config.block_n * row_bytes),
        Term("output staging", _OUTPUT_BUFFERS[config.output_staging] * staged_rows(config) * row_bytes),
        Term("partial output", staged_rows(config) * partial_row_bytes),
        Term("barriers", _BARRIER_BYTES),
    )


def _tensor_memory(config: AttentionConfig, workload: AttentionWorkload, compute: Compute) -> Budget:
    # Scores alternate between two buffers, so that softmax overlaps the next QK^T.
    scores = 2 * config.block_m * config.block_n * _ACCUMULATOR_BYTES
    output = config.block_m * workload.head_dim * _ACCUMULATOR_BYTES
    terms = (Term("scores", scores), Term("output", output))
    return Budget("tensor memory", "B", compute.tensor_memory_bytes_per_sm, terms)


def _registers(
    config: AttentionConfig, workload: AttentionWorkload, architecture: Architecture, compute: Compute
) -> tuple[Budget, Budget]:
    """Of a kernel that overlaps softmax with the next QK^T where that fits, else not."""
    elements = WARPGROUP_ROWS * config.block_n // _WARPGROUP_THREADS
    in_turn = (
        Term("scores", elements),  # of which the probabilities take the place
        Term("output", WARPGROUP_ROWS * workload.head_dim // _WARPGROUP_THREADS),
        Term("bookkeeping", _BOOKKEEPING_REGISTERS),
    )
    # The probabilities, as bf16 pairs, are the operand of P V while the next scores are computed.
    overlapped = (*in_turn, Term("probabilities", elements // 2))
    budgets = _register_budgets(config, overlapped, architecture, compute)
    if all(budget.fits for budget in budgets):
        return budgets
    return _register_budgets(config, in_turn, architecture, compute)


def _register_budgets(
    config: AttentionConfig, thread_terms: tuple[Term, ...], architecture: Architecture, compute: Compute
) -> tuple[Budget, Budget]:
    thread = Budget("registers of a math thread", "registers", architecture.thread_registers, thread_terms)
    groups = ceil(config.block_m / WARPGROUP_ROWS)
    producer = _STORING_PRODUCER_REGISTERS if config.paces_stores else _PRODUCER_REGISTERS
    file_terms = (
        Term("math warpgroups", groups * _WARPGROUP_THREADS * 8 * ceil(thread.used / 8)),
        Term("TMA warpgroup", _WARPGROUP_THREADS * producer),
    )
    return thread, Budget("register file", "registers", compute.registers_per_sm, file_terms)


def _mma_shape(message: str) -> Violation:
    return Violation("MMA shape", message)
