"""FlashAttention with the fused post-attention All-to-All (section 4.3, equations 17-21).

A CTA owns an output tile of b_m x d; K aligned CTAs burst ``V = K*Bt`` at a tile boundary, and the
gap to the next burst is the Q-loop over ceil(M / b_n) KV tiles. Where ``kv_splits`` CTAs share a tile, each
owns its part of the rows, and its Q-loop is over its part of the KV tiles.
Every function raises :class:`ValueError` for a negative, NaN or infinite argument.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from xstage_tune.model import burst_gap
from xstage_tune.model.checks import Floats, nonnegative, positive, positive_part


def output_tile_bytes(*, block_m: ArrayLike, head_dim: ArrayLike, element_bytes: ArrayLike) -> Floats:
    """``Bt = b_m*d*s_out``, what one CTA stores at a tile boundary."""
    elements = positive("block_m", block_m) * positive("head_dim", head_dim)
    return elements * positive("element_bytes", element_bytes)


def completion_coupled_exposure_ns(
    *, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike, latency_ns: ArrayLike, cover_ns: ArrayLike
) -> Floats:
    """Equation 17: ``dt_cc = [V/R + T_lat - T_cover]+`` per burst, had the issuer to await visibility.

    ``cover_ns`` is what finite local staging covers, at most about one QK^T tile: it does not grow with M.
    """
    drain = burst_gap.drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s)
    return positive_part(drain + nonnegative("latency_ns", latency_ns) - nonnegative("cover_ns", cover_ns))


def critical_path_overhead_ns(*, overhead_ns: ArrayLike, cover_ns: ArrayLike) -> Floats:
    """Equation 19: ``dt'(M) = [dt(M) - G_QK]+``, what double buffering leaves of equation 18."""
    return positive_part(nonnegative("overhead_ns", overhead_ns) - nonnegative("cover_ns", cover_ns))


def q_loop_kv_tiles(*, tokens: int, block_n: int, kv_splits: int = 1) -> int:
    """KV tiles of the longest Q-loop of a tile's CTAs, ``ceil(ceil(M / b_n) / kv_splits)``."""
    return -(-tokens // (block_n * kv_splits))


def converged_tokens(
    *,
    recovery_gap_ns: ArrayLike,
    block_n: ArrayLike,
    kv_tile_ns: ArrayLike,
    kv_splits: ArrayLike = 1,
    exchange_ns: ArrayLike = 0.0,
) -> Floats:
    """Equation 20: ``M*_ub = b_n*kv_splits*(G* - exchange) / sigma``, not rounded.

    From there on no residual is drain-induced. The exchange is of CTAs that share a tile.
    """
    gap_ns = nonnegative("recovery_gap_ns", recovery_gap_ns) - nonnegative("exchange_ns", exchange_ns)
    tiles = positive_part(gap_ns) / positive("kv_tile_ns", kv_tile_ns)
    return _rows_of_a_kv_tile_time(block_n, kv_splits) * tiles


def total_exposure_ns(*, output_bursts: ArrayLike, exposure_ns: ArrayLike) -> Floats:
    """Exposure over all output bursts of a launch, ``N_t*dt``.

    ``E_drain(M)`` with the exposure of equation 19, ``E_cc(M)`` with that of equation 17.
    """
    return nonnegative("output_bursts", output_bursts) * nonnegative("exposure_ns", exposure_ns)


def residual_ns(*, fused_ns: ArrayLike, attention_ns: ArrayLike) -> Floats:
    """``E_res = T_fused - T_FA``; measurement noise may make it negative."""
    return nonnegative("fused_ns", fused_ns) - nonnegative("attention_ns", attention_ns)


def hiding_ratio(*, fused_ns: ArrayLike, attention_ns: ArrayLike, serial_ns: ArrayLike) -> Floats:
    """Equation 21: ``H = 1 - (T_fused - T_FA) / (T_serial - T_FA)``.

    Raises:
        ValueError: a serial time is not above its attention time, so that there is nothing to hide.
    """
    attention = nonnegative("attention_ns", attention_ns)
    exposed = positive("serial_ns - attention_ns", nonnegative("serial_ns", serial_ns) - attention)
    return 1.0 - residual_ns(fused_ns=fused_ns, attention_ns=attention) / exposed


def ideal_speedup(*, all_to_all_ns: ArrayLike, attention_ns: ArrayLike) -> Floats:
    """``1 + T_A2A / T_FA``: fused over serial if all of the All-to-All were hidden (section 5.3)."""
    return 1.0 + nonnegative("all_to_all_ns", all_to_all_ns) / positive("attention_ns", attention_ns)


def _rows_of_a_kv_tile_time(block_n: ArrayLike, kv_splits: ArrayLike) -> Floats:
    """KV rows that the CTAs of an output tile go over in sigma."""
    return positive("block_n", block_n) * positive("kv_splits", kv_splits)
