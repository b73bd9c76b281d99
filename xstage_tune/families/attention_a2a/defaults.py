"""Attention configs that need no search, pure functions of the shapes."""

from __future__ import annotations

from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.platforms.queries import preferred_flavour
from xstage_tune.platforms.schema import PlatformProfile

#: Rows and KV rows of a tile, the usual ones first.
_TILES = ((128, 128), (128, 64), (64, 64), (64, 32))


def default_candidates(platform: PlatformProfile) -> list[AttentionConfig]:
    """128x128 tiles with two KV stages, the output in V's buffer, heads in turn, as FlashAttention does.

    Then smaller ones.
    """
    return [attention_config(block_m, block_n, platform) for block_m, block_n in _TILES]


def attention_config(block_m: int, block_n: int, platform: PlatformProfile) -> AttentionConfig:
    """A tile with FlashAttention's other choices."""
    return AttentionConfig(
        block_m=block_m,
        block_n=block_n,
        kv_stages=2,
        output_staging="alias-v",
        tile_order="sequential",
        store_flavour=preferred_flavour(platform),
    )
