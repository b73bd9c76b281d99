"""e4m3 with scales in plain torch: the MoE kernel's operands in w8a8, and its activations."""

from __future__ import annotations

from typing import Any

from xstage_tune.base.e4m3 import LARGEST
from xstage_tune.families.megamoe.built import SCALE_BLOCK


def quantise_rows(values: Any) -> tuple[Any, Any]:
    """``[rows, columns]`` as e4m3, and ``[rows, blocks]`` of scales: one for every 128 columns of a row."""
    scales = _blocks(values).abs().amax(-1).clamp(min=1e-30) / LARGEST
    return _rounded(values / _columns(scales, values.shape[-1])), scales


def quantise_blocks(values: Any) -> tuple[Any, Any]:
    """``[..., rows, columns]`` as e4m3, and one scale for every block of 128x128 of a matrix."""
    by_column = _blocks(values).abs().amax(-1)
    scales = _blocks(by_column.transpose(-1, -2)).amax(-1).transpose(-1, -2).clamp(min=1e-30) / LARGEST
    return _rounded(values / spread_blocks(scales, *values.shape[-2:])), scales.contiguous()


def spread_rows(scales: Any, columns: int) -> Any:
    """Of rows' scales, for every element."""
    return _columns(scales, columns)


def spread_blocks(scales: Any, rows: int, columns: int) -> Any:
    """Of blocks' scales, for every element."""
    return _columns(_columns(scales.transpose(-1, -2), rows).transpose(-1, -2), columns)


def requantised(activations: Any) -> Any:
    """fp32 activations as Linear-2 sees them."""
    numbers, scales = quantise_rows(activations)
    return numbers.float() * _columns(scales, activations.shape[-1])


def _rounded(values: Any) -> Any:
    import torch

    return values.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def _blocks(values: Any) -> Any:
    """The last axis as blocks, the last of them filled up with zeros."""
    import torch

    missing = -values.shape[-1] % SCALE_BLOCK
    filled = torch.nn.functional.pad(values, (0, missing))
    return filled.unflatten(-1, (-1, SCALE_BLOCK))


def _columns(scales: Any, columns: int) -> Any:
    return scales.repeat_interleave(SCALE_BLOCK, -1)[..., :columns]
