"""Variants of the fused MoE kernel: their macros, threads and shared memory."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.attention_variants import SHARED_BYTES_LIMIT
from xstage_tune.cuda.sources import MEGAMOE_SOURCE
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.spans import LANES

KERNEL = "mega_moe"
#: Two warpgroups that compute, and one that loads, publishes and stores.
THREADS = 384
#: A recording variant's lane before the staged spans: see ``role_spans.cuh``.
LANE_BYTES = 56
_PART_ROWS = 64
_CONSUMERS = 2
_WARP_THREADS = 32
_WORD_BYTES = 4
_ELEMENT_BYTES = 2
_PIPELINE_BYTES = 1024
#: Of tokens on their way from a rank to the pool.
_PIECES_BYTES = 4 * 2048
_LEAST_STAGES, _MOST_STAGES = 2, 8
_BUILT: dict[str, tuple[int, ...]] = {
    "block_m": (64, 128),
    "block_n": (128, 256),
    "block_k": (64,),
    "epilogue_warps": (8,),
}
_FLAVOUR_MACRO: dict[StoreFlavour, int] = {"st.v4": 0, "tma": 1}


def moe_variant(
    config: MegaMoeConfig, *, tickets: bool = False, dispatch: bool = False, record_spans: bool = False
) -> KernelVariant:
    """The kernel of a config. The schedule is an argument of its launches, so it makes no difference here.

    Args:
        tickets: CTAs take the tiles of one order one after the other; else each has its own beforehand.
        dispatch: it pulls the tokens that were routed to it.

    Raises:
        UsageError: the kernel has no such variant; says which knob is out of range.
    """
    _check(config, dispatch)
    shared = SHARED_BYTES_LIMIT if record_spans else shared_bytes(config, dispatch=dispatch)
    return KernelVariant(
        MEGAMOE_SOURCE,
        (KERNEL,),
        {
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


def shared_bytes(config: MegaMoeConfig, *, dispatch: bool = False) -> int:
    """Dynamic shared memory of a launch, without staged spans."""
    stage = (config.block_m + config.block_n) * config.block_k * _ELEMENT_BYTES
    columns = config.block_n // 2 if config.block_m == _PART_ROWS else config.block_n
    slot = _PART_ROWS * (columns * _ELEMENT_BYTES + 16)
    buffers = config.pipeline_stages * stage + _CONSUMERS * config.staging_depth * slot
    return buffers + _PIPELINE_BYTES + (_PIECES_BYTES if dispatch else 0)


def recording_bytes(config: MegaMoeConfig, *, dispatch: bool = False) -> int:
    """Shared memory left for staged spans."""
    words = _CONSUMERS * _WARP_THREADS * _WORD_BYTES
    return SHARED_BYTES_LIMIT - shared_bytes(config, dispatch=dispatch) - LANES * LANE_BYTES - words


def _check(config: MegaMoeConfig, dispatch: bool) -> None:
    for knob, built in _BUILT.items():
        value = getattr(config, knob)
        if value not in built:
            raise UsageError(
                f"the MoE kernel is not built for {knob} = {value}",
                f"choose {knob} from {', '.join(map(str, built))}",
            )
    if config.block_m == _PART_ROWS and config.block_n != max(_BUILT["block_n"]):
        raise UsageError(
            f"the MoE kernel is not built for tiles of {config.block_m}x{config.block_n}",
            f"choose block_n = {max(_BUILT['block_n'])} with block_m = {_PART_ROWS}",
        )
    if not _LEAST_STAGES <= config.pipeline_stages <= _MOST_STAGES:
        raise UsageError(
            f"the MoE kernel is not built for pipeline_stages = {config.pipeline_stages}",
            f"choose {_LEAST_STAGES} to {_MOST_STAGES}",
        )
    if config.schedule.placement != "even":
        raise UsageError(
            f"the MoE kernel has no placement '{config.schedule.placement}'", "choose placement 'even'"
        )
    needed = shared_bytes(config, dispatch=dispatch)
    if needed > SHARED_BYTES_LIMIT:
        raise UsageError(
            f"config {config.label} needs {needed:,} bytes of shared memory, of {SHARED_BYTES_LIMIT:,}",
            "choose fewer pipeline_stages, a smaller staging_depth or a smaller tile",
        )


def _shipped() -> tuple[MegaMoeConfig, ...]:
    rows: tuple[tuple[int, int, int, int, StoreFlavour], ...] = (
        # block_m, block_n, pipeline_stages, staging_depth, store_flavour
        (128, 256, 3, 1, "st.v4"),  # the widest products, of which an operand byte is used most often
        (128, 256, 3, 1, "tma"),
        (128, 128, 4, 2, "st.v4"),
        (128, 128, 4, 2, "tma"),
        (64, 256, 4, 1, "st.v4"),  # fewer rows an expert
        (64, 256, 3, 2, "tma"),
    )
    return tuple(
        MegaMoeConfig(
            block_m=block_m,
            block_n=block_n,
            block_k=64,
            pipeline_stages=stages,
            staging_depth=slots,
            schedule=Schedule(kind="interleaved", lead_rows=8),
            store_flavour=flavour,
            epilogue_warps=8,
        )
        for block_m, block_n, stages, slots, flavour in rows
    )


#: Configs whose kernels are compiled, run and compared with a reference by the tests.
SHIPPED = _shipped()
