"""Platforms and workloads of the config tests."""

from __future__ import annotations

from typing import Any

from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile, SplitTile

BLACKWELL = load_platform("paper-nvlink5")


def hopper() -> PlatformProfile:
    """An SM of Hopper: the same shared memory and registers, but no tensor memory; tiles may be split."""
    assert BLACKWELL.compute is not None
    tiles = tuple(
        tile.model_copy(
            update={
                "split": SplitTile(kv_tile_ns=1.1 * tile.kv_tile_ns, exchange_ns=2000.0, staging_ns=300.0)
            }
        )
        for tile in BLACKWELL.compute.attention
    )
    return BLACKWELL.model_copy(
        update={
            "name": "hopper",
            "gpu": BLACKWELL.gpu.model_copy(update={"architecture": "sm_90a", "sm_count": 132}),
            "compute": BLACKWELL.compute.model_copy(
                update={"tensor_memory_bytes_per_sm": 0, "attention": tiles}
            ),
        }
    )


def moe(**changes: Any) -> MoeWorkload:
    """A layer of two local experts."""
    keys = {
        "name": "test/moe", "source": "made up", "hidden": 1024, "intermediate": 512, "experts": 16,
        "top_k": 2, "tokens_per_rank": 2048,
    }  # fmt: skip
    return MoeWorkload.model_validate(keys | changes)


def attention(**changes: Any) -> AttentionWorkload:
    keys = {"name": "test/attention", "source": "made up", "heads": 16, "head_dim": 128, "tokens": 2048}
    return AttentionWorkload.model_validate(keys | changes)


def megamoe_config(schedule: Schedule | None = None, **changes: Any) -> MegaMoeConfig:
    keys = {
        "block_m": 192, "block_n": 128, "block_k": 128, "pipeline_stages": 4, "staging_depth": 2,
        "schedule": schedule or Schedule(kind="alternating"), "store_flavour": "st.v4", "epilogue_warps": 8,
    }  # fmt: skip
    return MegaMoeConfig.model_validate(keys | changes)


def attention_config(**changes: Any) -> AttentionConfig:
    keys = {
        "block_m": 128, "block_n": 128, "kv_stages": 2, "output_staging": "alias-v",
        "tile_order": "sequential", "store_flavour": "st.v4",
    }  # fmt: skip
    return AttentionConfig.model_validate(keys | changes)
