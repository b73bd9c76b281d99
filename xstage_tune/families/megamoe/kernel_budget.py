"""What a variant of the MoE kernel that comes with the tool takes of an SM.

See ``kernels/megamoe/config.cuh``.
"""

from __future__ import annotations

from xstage_tune.families.architecture import Architecture
from xstage_tune.families.budget import Budget, Term
from xstage_tune.families.megamoe.built import (
    CONSUMERS,
    PIPELINE_BYTES,
    SCALE_BLOCK,
    SHARED_BYTES_LIMIT,
    slot_bytes,
    stage_bytes,
)
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import Precision
from xstage_tune.platforms.schema import Compute

_WARPGROUP_THREADS = 128
#: Of a thread after ``setmaxnreg``: of the consumers, and of the warpgroup that loads, publishes and stores.
_CONSUMER_REGISTERS, _MOVING_REGISTERS = 216, 72
#: Addresses, places in rings and scales of a consumer, as compiled variants need at least.
_BOOKKEEPING_REGISTERS = 24
_CTA_THREADS = 1024  # CUDA's most


def kernel_budgets(
    config: MegaMoeConfig, precision: Precision, architecture: Architecture, compute: Compute
) -> tuple[Budget, ...]:
    """Shared memory, registers and threads of a config that is built."""
    shared = (
        Term("operand stages", config.pipeline_stages * stage_bytes(config, precision)),
        Term("output staging", config.staging_depth * slot_bytes(config)),
        Term("barriers and scheduler", PIPELINE_BYTES),
    )
    accumulators = config.block_m * config.block_n // (CONSUMERS * _WARPGROUP_THREADS)
    # Of e4m3 one product at a time is summed apart and then promoted: 64 rows by a block's columns.
    promotion = 64 * SCALE_BLOCK // _WARPGROUP_THREADS if precision == "w8a8" else 0
    thread = (
        Term("accumulators", accumulators),
        Term("promotion", promotion),
        Term("bookkeeping", _BOOKKEEPING_REGISTERS),
    )
    registers = (
        Term("math warpgroups", CONSUMERS * _WARPGROUP_THREADS * _CONSUMER_REGISTERS),
        Term("moving warpgroup", _WARPGROUP_THREADS * _MOVING_REGISTERS),
    )
    threads = (
        Term("math warpgroups", CONSUMERS * _WARPGROUP_THREADS),
        Term("moving warpgroup", _WARPGROUP_THREADS),
    )
    limit = min(compute.shared_bytes_per_cta, SHARED_BYTES_LIMIT)
    most = min(architecture.thread_registers, _CONSUMER_REGISTERS)
    return (
        Budget("shared memory", "B", limit, shared),
        Budget("registers of a math thread", "registers", most, thread),
        Budget("register file", "registers", compute.registers_per_sm, registers),
        Budget("threads of a CTA", "threads", _CTA_THREADS, threads),
    )
