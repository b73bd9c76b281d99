"""Which SMs a launch runs on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spread_sm_ids(producers: int, sm_count: int) -> NDArray[np.int64]:
    """``[K]`` SM ids spread evenly over the GPU."""
    return np.arange(producers) * sm_count // producers
