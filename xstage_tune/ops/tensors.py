"""What the kernels ask of a tensor, checked without importing the framework that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from xstage_tune.base.errors import UsageError

_BF16_BYTES = 2
#: Elements of 16 bytes, which the copy engine's strides are multiples of.
_STRIDE_ELEMENTS = 8


class Tensor(Protocol):
    """The part of ``torch.Tensor`` that is needed here."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    @property
    def is_cuda(self) -> bool: ...
    @property
    def requires_grad(self) -> bool: ...
    def stride(self) -> tuple[int, ...]: ...
    def data_ptr(self) -> int: ...


def no_gradient(what: str) -> UsageError:
    """What inputs that require gradients are refused with."""
    return UsageError(
        f"an input requires a gradient, and the {what} has none",
        "call it under torch.no_grad() or torch.inference_mode(), or detach the inputs",
    )


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Sizes of q, k and v, and where their rows are.

    Args:
        strides: of q, k and v in bytes, from token to token and from head to head.
    """

    tokens: int
    kv_tokens: int
    heads: int
    head_dim: int
    strides: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


def input_layout(q: Tensor, k: Tensor, v: Tensor) -> InputLayout:
    """Of three bf16 tensors on one GPU: q ``[tokens, heads, head_dim]``, k and v of as many tokens or others.

    Raises:
        UsageError: a tensor has another dtype, layout, place or shape; says which and what is needed.
    """
    tensors: Mapping[str, Tensor] = {"q": q, "k": k, "v": v}
    for name, tensor in tensors.items():
        _check_storage(name, tensor)
        if len(tensor.shape) != 3:
            raise UsageError(
                f"{name} has shape {list(tensor.shape)}",
                "give it as [tokens, local heads, head_dim]; of a batch make a call for each sequence",
            )
    for name in ("k", "v"):
        if tuple(tensors[name].shape[1:]) != tuple(q.shape[1:]):
            raise UsageError(
                f"{name} has shape {list(tensors[name].shape)} and q {list(q.shape)}",
                "heads and head_dim have to be equal: repeat grouped KV heads first",
            )
        if tensors[name].device != q.device:
            raise UsageError(
                f"{name} is on {tensors[name].device} and q on {q.device}", "move them to one GPU"
            )
    if v.shape[0] != k.shape[0]:
        raise UsageError(
            f"v has shape {list(v.shape)} and k {list(k.shape)}", "give a row of V for every row of K"
        )
    tokens, heads, head_dim = (int(size) for size in q.shape)
    strides = _strides("q", q), _strides("k", k), _strides("v", v)
    return InputLayout(tokens, int(k.shape[0]), heads, head_dim, strides)


def _check_storage(name: str, tensor: Tensor) -> None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != "bfloat16":
        raise UsageError(f"{name} is {dtype}: the kernel takes bfloat16", f"pass {name}.bfloat16()")
    if not tensor.is_cuda:
        raise UsageError(
            f"{name} is on {tensor.device}: the kernel takes tensors of a GPU", f"pass {name}.cuda()"
        )


def _strides(name: str, tensor: Tensor) -> tuple[int, int]:
    """From token to token and from head to head, in bytes; of a dimension of one any that is legal."""
    tokens, heads, head_dim = tensor.shape
    token, head, element = tensor.stride()
    head = head if heads > 1 else head_dim
    token = token if tokens > 1 else heads * head_dim
    bad = element != 1 or any(stride < head_dim or stride % _STRIDE_ELEMENTS for stride in (token, head))
    if bad and tokens and heads and head_dim:
        raise UsageError(
            f"{name} has strides {list(tensor.stride())}: the kernel takes rows of head_dim neighbours, "
            "16 bytes or a multiple of them apart",
            f"pass {name}.contiguous()",
        )
    return int(token) * _BF16_BYTES, int(head) * _BF16_BYTES
