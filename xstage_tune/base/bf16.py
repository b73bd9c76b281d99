"""bf16 numbers as bits, which NumPy has no type for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint16]
Floats = NDArray[np.float32]


def to_bf16(values: Floats) -> Bits:
    """Finite fp32 rounded to bf16, halves away from zero."""
    return ((values.view(np.uint32) + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)


def from_bf16(bits: Bits) -> Floats:
    """bf16 as fp32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
