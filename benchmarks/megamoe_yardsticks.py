"""What others take for the products of a MoE layer: the yardsticks of ``megamoe.py``.

Each is a function that queues its work on torch's current stream. Operands are random, and their own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from xstage_tune.cuda.moe_shape import MoeShape

Queues = dict[str, Callable[[], None]]
_BLOCK = 128


def bf16_products(shape: MoeShape) -> Queues:
    """Both Linears' products by cuBLAS: with one expert's weights, by expert, and torch's grouped."""
    import torch

    def normal(*size: int) -> Any:
        return torch.randn(size, device="cuda", dtype=torch.bfloat16)

    rows, ends = shape.rows, torch.tensor(shape.tokens_per_expert, device="cuda").cumsum(0).int()
    tokens, activations = normal(rows, shape.hidden), normal(rows, shape.intermediate)
    first = normal(shape.experts, 2 * shape.intermediate, shape.hidden)
    second = normal(shape.experts, shape.hidden, shape.intermediate)
    into1, into2 = normal(rows, 2 * shape.intermediate), normal(rows, shape.hidden)
    bounds = [0, *ends.tolist()]

    def dense() -> None:
        torch.mm(tokens, first[0].T, out=into1)
        torch.mm(activations, second[0].T, out=into2)

    def by_expert() -> None:
        for expert, (begin, end) in enumerate(pairwise(bounds)):
            torch.mm(tokens[begin:end], first[expert].T, out=into1[begin:end])
            torch.mm(activations[begin:end], second[expert].T, out=into2[begin:end])

    def grouped() -> None:
        torch._grouped_mm(tokens, first.transpose(1, 2), offs=ends)
        torch._grouped_mm(activations, second.transpose(1, 2), offs=ends)

    return {"cuBLAS dense": dense, "cuBLAS by expert": by_expert, "torch grouped": grouped}


def w8a8_products(shape: MoeShape) -> Queues:
    """The same in e4m3 with scales of 1x128 and 128x128: cuBLAS's, and DeepGEMM's where it is installed."""
    import torch

    first_rows = min(shape.rows, 1 << 16)  # of the dense products: the rate is the same from there on
    tokens, of_tokens = _numbers(first_rows, shape.hidden), _row_scales(first_rows, shape.hidden)
    made, of_made = _numbers(first_rows, shape.intermediate), _row_scales(first_rows, shape.intermediate)
    weights1, of_weights1 = _weights(2 * shape.intermediate, shape.hidden)
    weights2, of_weights2 = _weights(shape.hidden, shape.intermediate)

    def product(rows: Any, of_rows: Any, weights: Any, of_weights: Any) -> None:
        torch._scaled_mm(rows, weights.T, of_rows, of_weights.T, out_dtype=torch.bfloat16)

    def dense() -> None:
        product(tokens, of_tokens, weights1, of_weights1)
        product(made, of_made, weights2, of_weights2)

    found: Queues = {"cuBLAS dense": dense} if first_rows == shape.rows else {}
    if importlib.util.find_spec("deep_gemm") is not None:
        found["DeepGEMM grouped"] = _deep_gemm_grouped(shape)
    return found


def _deep_gemm_grouped(shape: MoeShape) -> Callable[[], None]:
    import deep_gemm
    import torch

    counts = torch.tensor(shape.tokens_per_expert, device="cuda")
    padded = (counts + _BLOCK - 1) // _BLOCK * _BLOCK
    rows = int(padded.sum())
    expert = torch.repeat_interleave(torch.arange(shape.experts, device="cuda"), padded).int()
    tokens, made = _numbers(rows, shape.hidden), _numbers(rows, shape.intermediate)
    of_tokens = torch.rand(rows, shape.hidden // _BLOCK, device="cuda")
    of_made = torch.rand(rows, shape.intermediate // _BLOCK, device="cuda")
    first = _experts_weights(shape, 2 * shape.intermediate, shape.hidden)
    second = _experts_weights(shape, shape.hidden, shape.intermediate)
    into1 = torch.empty(rows, 2 * shape.intermediate, device="cuda", dtype=torch.bfloat16)
    into2 = torch.empty(rows, shape.hidden, device="cuda", dtype=torch.bfloat16)

    def queue() -> None:
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous((tokens, of_tokens), first, into1, expert)
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous((made, of_made), second, into2, expert)

    return queue


def _numbers(rows: int, columns: int) -> Any:
    """Uniform e4m3: all bytes but NaNs are as likely as their numbers are wide."""
    import torch

    values = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16).uniform_(-448, 448)
    return values.to(torch.float8_e4m3fn)


def _row_scales(rows: int, columns: int) -> Any:
    """As cuBLAS reads them: those of a block of columns lie together."""
    import torch

    return torch.rand(columns // _BLOCK, rows, device="cuda").T


def _weights(rows: int, columns: int) -> tuple[Any, Any]:
    import torch

    return _numbers(rows, columns), torch.rand(rows // _BLOCK, columns // _BLOCK, device="cuda")


def _experts_weights(shape: MoeShape, rows: int, columns: int) -> tuple[Any, Any]:
    import torch

    numbers = torch.stack([_numbers(rows, columns) for _ in range(shape.experts)])
    size = (shape.experts, rows // _BLOCK, columns // _BLOCK)
    return numbers, torch.rand(size, device="cuda") * 1e-3
