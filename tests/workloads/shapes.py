"""Layers for tests: the smallest that shows the behaviour."""

from __future__ import annotations

from typing import Any

from xstage_tune.families.megamoe.workload import MoeWorkload


def moe(**keys: Any) -> MoeWorkload:
    """Eight experts on four ranks, top-2, 100 tokens a rank; ``keys`` override."""
    layer = {
        "name": "test",
        "source": "test",
        "hidden": 256,
        "intermediate": 128,
        "experts": 8,
        "top_k": 2,
        "ep_degree": 4,
        "tokens_per_rank": 100,
    }
    return MoeWorkload.model_validate({**layer, **keys})
