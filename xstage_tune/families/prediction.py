"""What a ranking expects of a config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected time of a launch, and the part of it in which a Tensor Core role waits, ns.

    Both are NaN where nothing is known of a kernel.
    """

    latency_ns: float
    stall_ns: float
