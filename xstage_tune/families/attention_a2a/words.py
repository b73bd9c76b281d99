"""An attention in words."""

from __future__ import annotations

from xstage_tune.base.number_format import counted, percent
from xstage_tune.families.attention_a2a.workload import AttentionWorkload


def shape_words(workload: AttentionWorkload) -> str:
    """In a few characters, for lists."""
    return f"{workload.heads} heads x {workload.head_dim}"


def facts(workload: AttentionWorkload) -> list[tuple[str, str]]:
    """What it says and what follows from that, to read."""
    return [
        ("dtype", workload.dtype),
        ("heads per rank", f"{workload.local_heads} of {workload.heads}, degree {workload.degree}"),
        ("rows per rank", f"{workload.rows_per_rank:,}"),
        ("remote share of output", f"{workload.output_remote_fraction:.1%}"),
    ]


def derived(workload: AttentionWorkload) -> dict[str, object]:
    """What follows from it, under stable names."""
    return {
        "local_heads": workload.local_heads,
        "remote_fraction": workload.output_remote_fraction,
        "rows_per_rank": workload.rows_per_rank,
    }


def sentence(workload: AttentionWorkload) -> str:
    """Shape, ranks and remote share."""
    return (
        f"{counted(workload.tokens, 'token')}, {counted(workload.heads, 'head')} of {workload.head_dim} "
        f"over {counted(workload.degree, 'rank')}, {workload.dtype}; "
        f"{percent(100 * workload.output_remote_fraction, 1)} of the output leaves the GPU."
    )
