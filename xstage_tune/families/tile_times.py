"""Time of a full tile of a config, by closed forms: what bounds and rankings use, and the simulator too.

A mainloop takes ``fill + max(compute, load)``. Compute is the work at the SM's part of peak times efficiency;
load is the operands' way from L2, at the port's rate or at what the pipeline keeps in flight over the latency
(Little's law), whichever is less. Weights that come from memory are not in here: see
:func:`xstage_tune.families.megamoe.compute.moe_mainloop_ns`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.families.architecture import compute_of
from xstage_tune.platforms.schema import PlatformProfile, TensorRate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Not in a platform profile, so the same everywhere. An SM's port to L2 is 64 bytes wide. A bulk copy takes
# about half a microsecond: an L2 hit of 260 cycles (arXiv 2402.13499, H100) behind a queue of others.
_L2_PORT_BYTES_PER_CLOCK = 64
_LOAD_LATENCY_NS = 500.0
# The paper's Table 2: a 192x128 tile that never waits spends 3.6 to 3.9 us in its epilogue, of which the
# remote stores take T0 = 1.1 us. The rest is divided among 8 warps, DeepGEMM's number.
EPILOGUE_WARP_NS_PER_ELEMENT = 2500.0 * 8 / (192 * 128)


def tensor_rate(platform: PlatformProfile, dtype: str) -> TensorRate:
    """The Tensor Cores' rate for operands of a type.

    Raises:
        UsageError: the profile has no compute section, or no rate for the type.
    """
    for rate in compute_of(platform).tensor:
        if rate.dtype == dtype:
            return rate
    raise UsageError(
        f"platform '{platform.name}' has no compute.tensor rate for '{dtype}'",
        "add [[compute.tensor]] to the profile",
    )


def local_store_bytes_per_ns(platform: PlatformProfile) -> float:
    """Rate of one SM's local stores: its part of the memory's bandwidth."""
    return compute_of(platform).memory_bytes_per_s / platform.gpu.sm_count / 1e9


def load_bytes_per_ns(in_flight_bytes: float, platform: PlatformProfile) -> float:
    port = _L2_PORT_BYTES_PER_CLOCK * platform.gpu.sm_clock_mhz / 1e3
    return min(port, in_flight_bytes / _LOAD_LATENCY_NS)
