"""Variants of the fused FlashAttention kernel: their macros, threads and shared memory."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.sources import ATTENTION_SOURCE
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.attention_a2a.budget import (
    BUILT_BLOCK_M,
    BUILT_BLOCK_N,
    BUILT_HEAD_DIMS,
    WARPGROUP_ROWS,
    finishing_warpgroups,
    shared_terms,
)
from xstage_tune.families.attention_a2a.config import AttentionConfig, OutputStaging, TileOrder

KERNEL = "attention_a2a"
_THREADS = 128
#: 227 KiB, what a CTA may have on compute capability 9.0.
SHARED_BYTES_LIMIT = 232_448
#: A recording variant's lanes and words before the staged spans: see ``tile_spans.cuh``.
LANE_BYTES = 56
_WORD_BYTES = 4

_STAGING_MACRO: dict[OutputStaging, int] = {
    "alias-q": 0,
    "alias-v": 1,
    "dedicated-x1": 2,
    "dedicated-x2": 3,
}
_FLAVOUR_MACRO: dict[StoreFlavour, int] = {"st.v4": 0, "tma": 1}
#: ``TileOrder`` of ``tile_order.cuh``.
TILE_ORDER_NUMBER: dict[TileOrder, int] = {"sequential": 0, "rotated": 1, "spread": 2, "own-last": 3}

#: The two kernels beside the attention: deferred signals, and receipts.
EPOCHS = KernelVariant("attention_a2a/epochs.cu", ("signal_epoch", "receive_epoch"))


def attention_variant(
    config: AttentionConfig,
    head_dim: int,
    *,
    record_spans: bool = False,
    write_lse: bool = False,
    omit_signal: bool = False,
) -> KernelVariant:
    """The kernel of a config. The tile order is an argument of its launches, so it makes no difference here.

    Raises:
        UsageError: the kernel has no such variant; says which knob is out of range.
    """
    _check(config, head_dim)
    shared = SHARED_BYTES_LIMIT if record_spans else shared_bytes(config, head_dim)
    return KernelVariant(
        ATTENTION_SOURCE,
        (KERNEL,),
        {
            "HEAD_DIM": head_dim,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "KV_STAGES": config.kv_stages,
            "KV_SPLITS": config.kv_splits,
            "OUTPUT_STAGING": _STAGING_MACRO[config.output_staging],
            "STORE_FLAVOUR": _FLAVOUR_MACRO[config.store_flavour],
            "RECORD_SPANS": int(record_spans),
            "WRITE_LSE": int(write_lse),
            "SHARED_BYTES": shared,
            "OMIT_SIGNAL": int(omit_signal),
        },
    )


def shared_bytes(config: AttentionConfig, head_dim: int) -> int:
    """Dynamic shared memory of a launch, without staged spans."""
    return sum(term.amount for term in shared_terms(config, head_dim))


def consumers(config: AttentionConfig) -> int:
    """Consumer warpgroups of a CTA: each computes 64 rows of a tile."""
    return config.block_m // WARPGROUP_ROWS


def threads(config: AttentionConfig) -> int:
    """Threads of a CTA: the consumers, and the warpgroup that loads."""
    return _THREADS * (consumers(config) + 1)


def recording_bytes(config: AttentionConfig, head_dim: int) -> int:
    """Shared memory left for staged spans."""
    lanes = finishing_warpgroups(config) * (LANE_BYTES + _THREADS * _WORD_BYTES)
    return SHARED_BYTES_LIMIT - shared_bytes(config, head_dim) - lanes


def _check(config: AttentionConfig, head_dim: int) -> None:
    for knob, value, built in (
        ("head_dim", head_dim, BUILT_HEAD_DIMS["sm_90"]),
        ("block_m", config.block_m, BUILT_BLOCK_M["sm_90"]),
        ("block_n", config.block_n, BUILT_BLOCK_N["sm_90"]),
    ):
        if value not in built:
            raise UsageError(
                f"the attention kernel is not built for {knob} = {value}",
                f"choose {knob} from {', '.join(map(str, built))}",
            )
    if config.kv_splits > 1 and (
        config.block_m != config.kv_splits * WARPGROUP_ROWS or not config.hands_stores_over
    ):
        raise UsageError(
            f"the attention kernel splits KV in {config.kv_splits} only for tiles of "
            f"{config.kv_splits * WARPGROUP_ROWS} rows with staging of their own",
            f"choose block_m = {config.kv_splits * WARPGROUP_ROWS} and output_staging dedicated-x1 or -x2",
        )
    if config.output_staging == "alias-v" and config.block_m > config.kv_stages * config.block_n:
        raise UsageError(
            f"an output of {config.block_m} rows does not fit into V's buffers of "
            f"{config.kv_stages} x {config.block_n} rows",
            "choose another output_staging, or more kv_stages",
        )
    needed = shared_bytes(config, head_dim)
    if needed > SHARED_BYTES_LIMIT:
        raise UsageError(
            f"config {config.label} needs {needed:,} bytes of shared memory at head_dim {head_dim}, "
            f"of {SHARED_BYTES_LIMIT:,}",
            "choose a smaller block_n, fewer kv_stages, or an aliased output_staging",
        )


def _shipped() -> tuple[tuple[AttentionConfig, int], ...]:
    rows: tuple[tuple[int, int, int, int, OutputStaging, StoreFlavour, int], ...] = (
        # head_dim, block_m, block_n, kv_stages, output_staging, store_flavour, kv_splits
        (128, 128, 176, 2, "alias-v", "st.v4", 1),  # FlashAttention-3's tile
        (128, 128, 176, 2, "alias-v", "tma", 1),
        (128, 128, 160, 2, "alias-q", "st.v4", 1),
        (128, 128, 128, 2, "alias-v", "st.v4", 1),  # FlashAttention-4's
        (128, 128, 128, 2, "dedicated-x1", "tma", 1),
        (128, 128, 80, 2, "dedicated-x2", "tma", 1),
        (128, 192, 128, 2, "alias-q", "st.v4", 1),
        (128, 192, 128, 2, "alias-v", "tma", 1),
        (128, 128, 160, 2, "dedicated-x1", "st.v4", 1),
        (128, 192, 80, 2, "dedicated-x1", "st.v4", 1),
        (128, 192, 80, 2, "alias-q", "st.v4", 1),
        (128, 192, 80, 3, "alias-v", "st.v4", 1),
        (64, 128, 176, 2, "alias-v", "st.v4", 1),
        (64, 128, 128, 2, "alias-v", "st.v4", 1),
        (64, 128, 128, 2, "dedicated-x2", "tma", 1),
        (64, 192, 128, 2, "alias-q", "st.v4", 1),
        (64, 192, 128, 2, "dedicated-x1", "st.v4", 1),
        (128, 128, 144, 2, "dedicated-x1", "st.v4", 2),
        (128, 128, 128, 2, "dedicated-x1", "st.v4", 2),
        (128, 128, 96, 2, "dedicated-x2", "tma", 2),
        (64, 128, 128, 2, "dedicated-x2", "st.v4", 2),
    )
    return tuple(
        (
            AttentionConfig(
                block_m=block_m,
                block_n=block_n,
                kv_stages=kv_stages,
                output_staging=staging,
                tile_order="rotated",
                store_flavour=flavour,
                kv_splits=kv_splits,
            ),
            head_dim,
        )
        for head_dim, block_m, block_n, kv_stages, staging, flavour, kv_splits in rows
    )


#: Configs and head dims whose kernels are compiled, run and compared with a reference by the tests.
SHIPPED = _shipped()
