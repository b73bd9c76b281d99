"""Templates of workload profiles."""

from __future__ import annotations

from xstage_tune.profile_templates import checked_template
from xstage_tune.workloads.loader import WORKLOAD_MODELS

_HEADINGS = {
    "moe": "A fused MoE layer, for xstage-tune. The values are examples: put in those of your layer.",
    "attention": "A Ulysses self-attention, for xstage-tune. The values are examples: put in those of yours.",
}


def workload_template(name: str, kind: str) -> str:
    """A commented workload profile called ``name``, of a ``kind`` of workload, as TOML that loads.

    Raises:
        UsageError: a workload cannot be called so.
    """
    return checked_template(WORKLOAD_MODELS[kind], _HEADINGS[kind], name)
