"""e4m3 numbers as bytes, which NumPy has no type for."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

#: The largest finite one.
LARGEST = 448.0
_BIAS, _MANTISSA_BITS = 7, 3


def from_e4m3(numbers: Bytes) -> Floats:
    """e4m3 as fp32, exactly; NaN where all bits but the sign's are set."""
    values: Floats = _values()[numbers]
    return values


@cache
def _values() -> Floats:
    bits = np.arange(256)
    exponent, mantissa = bits >> _MANTISSA_BITS & 15, bits & 7
    # Without an exponent there is no leading 1, and the exponent is that of the least with one.
    whole = np.where(exponent > 0, mantissa + 8, mantissa)
    values = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - _BIAS - _MANTISSA_BITS)
    values[(bits & 127) == 127] = np.nan
    signed: Floats = np.where(bits & 128, -values, values).astype(np.float32)
    return signed
