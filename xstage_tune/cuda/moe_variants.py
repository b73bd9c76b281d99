"""Variants of the fused MoE kernel: their macros, threads and shared memory."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.sources import MEGAMOE_SOURCE
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.built import BUILT, CONSUMERS, SHARED_BYTES_LIMIT, shared_bytes, unbuilt
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.spans import LANES
from xstage_tune.families.megamoe.workload import Precision

KERNEL = "mega_moe"
#: Two warpgroups that compute, and one that loads, publishes and stores.
THREADS = 384
#: A recording variant's lane before the staged spans: see ``role_spans.cuh``.
LANE_BYTES = 56
_WARP_THREADS = 32
_WORD_BYTES = 4
_FLAVOUR_MACRO: dict[StoreFlavour, int] = {"st.v4": 0, "tma": 1}
_FORMAT_MACRO: dict[Precision, int] = {"bf16": 0, "w8a8": 1}


def moe_variant(
    config: MegaMoeConfig,
    precision: Precision,
    *,
    tickets: bool = False,
    dispatch: bool = False,
    record_spans: bool = False,
) -> KernelVariant:
    """The kernel of a config. The schedule is an argument of its launches, so it makes no difference here.

    Args:
        tickets: CTAs take the tiles of one order one after the other; else each has its own beforehand.
        dispatch: it pulls the tokens that were routed to it.

    Raises:
        UsageError: the kernel has no such variant; says which knob is out of range.
    """
    for reason, hint in unbuilt(config, precision, dispatch=dispatch):
        raise UsageError(reason, hint)
    shared = SHARED_BYTES_LIMIT if record_spans else shared_bytes(config, precision, dispatch=dispatch)
    return KernelVariant(
        MEGAMOE_SOURCE,
        (KERNEL,),
        {
            "FORMAT": _FORMAT_MACRO[precision],
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "STAGES": config.pipeline_stages,
            "STAGING_SLOTS": config.staging_depth,
            "STORE_FLAVOUR": _FLAVOUR_MACRO[config.store_flavour],
            "TICKETS": int(tickets),
            "DISPATCH": int(dispatch),
            "RECORD_SPANS": int(record_spans),
            "SHARED_BYTES": shared,
        },
    )


def recording_bytes(config: MegaMoeConfig, precision: Precision, *, dispatch: bool = False) -> int:
    """Shared memory left for staged spans."""
    lanes = LANES * LANE_BYTES + CONSUMERS * _WARP_THREADS * _WORD_BYTES
    return SHARED_BYTES_LIMIT - shared_bytes(config, precision, dispatch=dispatch) - lanes


def _shipped() -> dict[Precision, tuple[MegaMoeConfig, ...]]:
    rows: dict[Precision, tuple[tuple[int, int, int, int, StoreFlavour], ...]] = {
        # block_m, block_n, pipeline_stages, staging_depth, store_flavour
        "bf16": (
            (128, 256, 3, 1, "st.v4"),  # the widest products, of which an operand byte is used most often
            (128, 256, 3, 1, "tma"),
            (128, 128, 4, 2, "st.v4"),
            (128, 128, 4, 2, "tma"),
            (64, 256, 4, 1, "st.v4"),  # fewer rows an expert
            (64, 256, 3, 2, "tma"),
        ),
        "w8a8": ((128, 256, 3, 1, "st.v4"), (128, 256, 3, 1, "tma")),
    }
    return {
        precision: tuple(_shipped_config(precision, *row) for row in of_precision)
        for precision, of_precision in rows.items()
    }


def _shipped_config(
    precision: Precision, block_m: int, block_n: int, stages: int, slots: int, flavour: StoreFlavour
) -> MegaMoeConfig:
    (block_k,) = BUILT[precision]["block_k"]
    return MegaMoeConfig(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        pipeline_stages=stages,
        staging_depth=slots,
        schedule=Schedule(kind="interleaved", lead_rows=8),
        store_flavour=flavour,
        epilogue_warps=8,
    )


#: Configs whose kernels are compiled, run and compared with a reference by the tests.
SHIPPED = _shipped()
