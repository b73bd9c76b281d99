"""The MoE layer over a group as one operator of torch's own, which a compiler takes as it is.

A compiler sees tensors, numbers and strings: the group by its name, the config as JSON.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.ops.moe_eager import compute
from xstage_tune.ops.operator import group_of
from xstage_tune.ops.runtime import import_torch
from xstage_tune.ops.tensors import no_gradient

_NAME = "moe_over_group"
_SCHEMA = (
    "(Tensor tokens, Tensor topk_ids, Tensor topk_weights, Tensor weights1, Tensor weights2, "
    "Tensor? scales1, Tensor? scales2, Tensor? token_scales, str group, int max_tokens, int? max_rows, "
    "str? config, float timeout_s) -> Tensor"
)
_TENSORS = 8  # the first arguments


def _run(*arguments: Any) -> Any:
    tensors, (group, max_tokens, max_rows, config, timeout_s) = arguments[:_TENSORS], arguments[_TENSORS:]
    chosen = None if config is None else _config(config)
    others = group_of(group), max_tokens, max_rows, chosen, timeout_s, None
    return compute(*(*tensors, *others))


def _shape(tokens: Any, *_: Any) -> Any:
    return tokens.new_empty(tokens.shape, dtype=import_torch().bfloat16)


def _without_gradient(*arguments: Any) -> Any:
    torch = import_torch()
    tensors = [tensor for tensor in arguments[:_TENSORS] if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise no_gradient("layer")
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.xstage_tune.moe_over_group(*arguments)


@cache
def _config(text: str) -> MegaMoeConfig:
    return MegaMoeConfig.model_validate_json(text)


def _register() -> Any:
    """Make ``torch.ops.xstage_tune.moe_over_group``; the library that keeps it."""
    torch = import_torch()
    library = torch.library.Library("xstage_tune", "FRAGMENT")
    library.define(_NAME + _SCHEMA)
    library.impl(_NAME, _run, "CUDA")
    library.impl(_NAME, _without_gradient, "Autograd")
    torch.library.register_fake(f"xstage_tune::{_NAME}", _shape, lib=library)
    return library


_LIBRARY = _register()
