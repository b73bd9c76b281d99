"""Numbers published in the X-Stage paper (arXiv 2607.23264), as its tables and text print them."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20
KIB = 1 << 10

DRAIN_BYTES_PER_S = 717e9
PRODUCERS = 148
FREE_ISSUE_NS = 760.0  # at 32 KiB per producer
CAPACITY_BYTES = 4.25 * MIB


class StallRow(NamedTuple):
    """A row of Table 2, in us."""

    wave_span: float
    interleaved_span: float
    l2_mainloop: float
    l1_mainloop: float
    wave_stall: float
    interleaved_stall: float


TABLE_2 = {
    "DiT-MoE": StallRow(9.93, 3.77, 5.30, 9.77, 4.63, 0),
    "Qwen3.5": StallRow(9.17, 3.82, 4.24, 14.40, 4.94, 0),
    "Hy3": StallRow(9.68, 3.59, 6.09, 10.79, 3.60, 0),
    "MiMo-V2.5": StallRow(9.22, 3.94, 7.77, 7.57, 1.45, 0),
    "GLM-5.2": StallRow(9.53, 3.63, 7.99, 18.77, 1.54, 0),
    "DSv4-Flash": StallRow(9.48, 3.83, 8.01, 7.40, 1.47, 0),
    "DSv4-Pro": StallRow(7.88, 3.55, 9.54, 11.57, 0, 0),
}

TOKENS = [8_192, 16_384, 32_768, 49_152, 65_536]


class AttentionRows(NamedTuple):
    """The rows of one FlashAttention generation in Table 3, in us, over :data:`TOKENS`."""

    attention: list[float]
    serial: list[float]
    fused: list[float]
    speedup: list[float]
    hiding_percent: list[float]  # "about 100%" as 100


TABLE_3 = {
    "FA3": AttentionRows(
        [195.2, 785.5, 3236.7, 7275.6, 13249.4],
        [295.6, 968.3, 3579.6, 7767.9, 13936.6],
        [207.0, 795.5, 3241.5, 7285.7, 13218.3],
        [1.428, 1.217, 1.104, 1.066, 1.054],
        [88, 95, 99, 98, 100],
    ),
    "FA4": AttentionRows(
        [85.4, 346.5, 1439.4, 3281.4, 5340.7],
        [140.9, 462.4, 1660.9, 3661.7, 5813.0],
        [99.4, 356.6, 1429.2, 3282.1, 5348.9],
        [1.417, 1.297, 1.162, 1.116, 1.087],
        [75, 91, 100, 100, 98],
    ),
}
