"""A MoE layer in words."""

from __future__ import annotations

from xstage_tune.base.number_format import counted, factor, percent
from xstage_tune.families.megamoe import routing
from xstage_tune.families.megamoe.workload import MoeWorkload


def shape_words(layer: MoeWorkload) -> str:
    """In a few characters, for lists."""
    experts = f"{layer.experts} experts, top-{layer.top_k}"
    return f"hidden {layer.hidden}, intermediate {layer.intermediate}, {experts}"


def facts(layer: MoeWorkload) -> list[tuple[str, str]]:
    """What it says and what follows from that, to read."""
    per_expert = routing.tokens_per_expert(layer)
    return [
        ("precision", layer.precision),
        ("experts per rank", f"{layer.local_experts} of {layer.experts}, EP {layer.ep_degree}"),
        ("routing", _routing(layer)),
        ("tokens per expert", f"{per_expert.min():,} to {per_expert.max():,}"),
        ("busiest rank over mean", factor(routing.rank_imbalance(layer))),
        ("remote share of Combine", f"{layer.combine_remote_fraction:.1%}"),
    ]


def derived(layer: MoeWorkload) -> dict[str, object]:
    """What follows from it, under stable names."""
    return {
        "assignments": layer.assignments,
        "group_tokens": layer.group_tokens,
        "local_experts": layer.local_experts,
        "rank_imbalance": routing.rank_imbalance(layer),
        "remote_fraction": layer.combine_remote_fraction,
        "tokens_per_expert": routing.tokens_per_expert(layer),
        "tokens_per_rank_received": routing.tokens_per_rank_received(layer),
    }


def sentence(layer: MoeWorkload) -> str:
    """Shape, routing and remote share."""
    tokens = routing.busiest_tokens(layer)
    mean = layer.assignments / layer.ep_degree
    return (
        f"hidden {layer.hidden:,}, expert intermediate {layer.intermediate:,}, {layer.experts} experts, "
        f"top-{layer.top_k}, {layer.precision}, {counted(layer.ep_degree, 'rank')} of "
        f"{counted(layer.tokens_per_rank, 'token')}, "
        f"{layer.routing.kind} routing. The busiest rank computes {counted(int(tokens.sum()), 'row')}, "
        f"{tokens.sum() / mean:.2f}x the mean, and {percent(100 * layer.combine_remote_fraction, 1)} of its "
        "Combine bytes leave the GPU."
    )


def _routing(layer: MoeWorkload) -> str:
    if layer.routing.kind == "zipf":
        return f"zipf, alpha {layer.routing.alpha:g}, seed {layer.routing.seed or 0}"
    return layer.routing.kind
