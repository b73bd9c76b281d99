"""Input checks shared by the equations."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

NS_PER_S = 1e9


def nonnegative(name: str, value: ArrayLike) -> Floats:
    """``value`` as float64.

    Raises:
        ValueError: an element is negative, NaN or infinite.
    """
    array = np.asarray(value, dtype=np.float64)
    if isinstance(value, float | int) and 0 <= value < inf:
        return array  # most arguments of a search, which has them checked a hundred thousand times
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    return array


def positive(name: str, value: ArrayLike) -> Floats:
    """``value`` as float64.

    Raises:
        ValueError: an element is zero, negative, NaN or infinite.
    """
    array = np.asarray(value, dtype=np.float64)
    if isinstance(value, float | int) and 0 < value < inf:
        return array
    if not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} must be finite and positive, got {value!r}")
    return array


def positive_part(value: Floats) -> Floats:
    """``[x]+ = max(x, 0)``."""
    return np.maximum(value, 0.0)
