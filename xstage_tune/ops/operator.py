"""The attention over a process group as an operator of torch, for its compilers."""

from __future__ import annotations

from functools import cache
from typing import Any

from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops.collective import ProcessGroup
from xstage_tune.ops.eager import attend
from xstage_tune.ops.runtime import import_torch
from xstage_tune.ops.tensors import no_gradient

_NAME = "attention_over_group"
_SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, str group, int rank, int ranks, str? config, int? heads, "
    "float? softmax_scale, float timeout_s) -> Tensor"
)
#: Groups by name that torch does not know.
GROUPS: dict[str, ProcessGroup] = {}


def _run(
    q: Any,
    k: Any,
    v: Any,
    group: str,
    rank: int,  # noqa: ARG001 - for the fake
    ranks: int,  # noqa: ARG001
    config: str | None,
    heads: int | None,
    softmax_scale: float | None,
    timeout_s: float,
) -> Any:
    chosen = None if config is None else _config(config)
    return attend(q, k, v, group_of(group), chosen, None, heads, softmax_scale, True, timeout_s, None)


def _shape(
    q: Any,
    k: Any,  # noqa: ARG001 - the operator's arguments
    v: Any,  # noqa: ARG001
    group: str,  # noqa: ARG001
    rank: int,
    ranks: int,
    config: str | None,  # noqa: ARG001
    heads: int | None,
    *_: Any,
) -> Any:
    """As many rows as this rank owns, of all ranks' heads."""
    tokens, local_heads, head_dim = q.shape
    rows_per_rank = (tokens + ranks - 1) // ranks
    rows = min(rows_per_rank, max(0, tokens - rank * rows_per_rank)) if rank else rows_per_rank
    return q.new_empty((rows, heads or ranks * local_heads, head_dim))


def _without_gradient(q: Any, k: Any, v: Any, *others: Any) -> Any:
    torch = import_torch()
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v)):
        raise no_gradient("attention")
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.xstage_tune.attention_over_group(q, k, v, *others)


@cache
def _config(text: str) -> AttentionConfig:
    return AttentionConfig.model_validate_json(text)


def group_of(name: str) -> ProcessGroup:
    """The group of a name, as an operator is given it."""
    if (group := GROUPS.get(name)) is None:
        group = import_torch().distributed.distributed_c10d._resolve_process_group(name)
    return group


def _register() -> Any:
    """Make ``torch.ops.xstage_tune.attention_over_group``; the library that keeps it."""
    torch = import_torch()
    library = torch.library.Library("xstage_tune", "DEF")
    library.define(_NAME + _SCHEMA)
    library.impl(_NAME, _run, "CUDA")
    library.impl(_NAME, _without_gradient, "Autograd")
    torch.library.register_fake(f"xstage_tune::{_NAME}", _shape, lib=library)
    return library


_LIBRARY = _register()
