"""What the kernels ask of a tensor, checked without importing the framework that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from xstage_tune.base.errors import UsageError


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
    def is_contiguous(self) -> bool: ...
    def data_ptr(self) -> int: ...


def attention_sizes(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int, int]:
    """(tokens, heads, head_dim) of three equal bf16 tensors on one GPU.

    Raises:
        UsageError: a tensor has another dtype, layout, place or shape; says which and what is needed.
    """
    tensors: Mapping[str, Tensor] = {"q": q, "k": k, "v": v}
    for name, tensor in tensors.items():
        _check_storage(name, tensor)
        if len(tensor.shape) != 3:
            raise UsageError(
                f"{name} has shape {list(tensor.shape)}", "give it as [tokens, local heads, head_dim]"
            )
    for name in ("k", "v"):
        if tuple(tensors[name].shape) != tuple(q.shape):
            raise UsageError(
                f"{name} has shape {list(tensors[name].shape)} and q {list(q.shape)}",
                "self-attention needs equal shapes: repeat grouped KV heads first",
            )
        if tensors[name].device != q.device:
            raise UsageError(
                f"{name} is on {tensors[name].device} and q on {q.device}", "move them to one GPU"
            )
    tokens, heads, head_dim = (int(size) for size in q.shape)
    return tokens, heads, head_dim


def _check_storage(name: str, tensor: Tensor) -> None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != "bfloat16":
        raise UsageError(f"{name} is {dtype}: the kernel takes bfloat16", f"pass {name}.bfloat16()")
    if not tensor.is_cuda:
        raise UsageError(
            f"{name} is on {tensor.device}: the kernel takes tensors of a GPU", f"pass {name}.cuda()"
        )
    if not tensor.is_contiguous():
        raise UsageError(f"{name} is not contiguous", f"pass {name}.contiguous()")
