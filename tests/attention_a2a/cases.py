"""Configs and shapes of the attention kernel's tests."""

from __future__ import annotations

from typing import Any

from xstage_tune.families.attention_a2a.config import AttentionConfig


def config(**changes: Any) -> AttentionConfig:
    """A 128x128 tile, with changes."""
    values: dict[str, Any] = {
        "block_m": 128,
        "block_n": 128,
        "kv_stages": 2,
        "output_staging": "alias-q",
        "tile_order": "sequential",
        "store_flavour": "st.v4",
    }
    return AttentionConfig.model_validate(values | changes)
