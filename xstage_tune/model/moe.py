"""MegaMoE: expert-wave and interleaved schedules (section 4.2, equations 11-16).

One Linear-2 tile stores its Combine bytes Vt; the K_act producers whose tile boundaries align make
the burst ``V = K_act*Vt``. T_L1 and T_L2 (``l1_mainloop_ns``, ``l2_mainloop_ns``) are the mainloop
times of one tile, and a steady cycle holds n1 Linear-1 and n2 Linear-2 tiles.

These are steady-state laws: real Linear-2 runs are finite and start on a drained path, so use them
as the test and the bound, and the event simulation for the time.
Every function raises :class:`ValueError` for a negative, NaN or infinite argument.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xstage_tune.model import burst_gap
from xstage_tune.model.checks import NS_PER_S, Floats, nonnegative, positive, positive_part


def wave_issue_ns(
    *,
    l2_mainloop_ns: ArrayLike,
    free_issue_ns: ArrayLike,
    volume_bytes: ArrayLike,
    drain_bytes_per_s: ArrayLike,
) -> Floats:
    """Equation 11: ``T_iss + G = V/R`` under the wave schedule, so ``V/R - T_L2`` until that meets T0."""
    return burst_gap.issue_ns(
        gap_ns=l2_mainloop_ns,
        free_issue_ns=free_issue_ns,
        volume_bytes=volume_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
    )


def interleaved_gap_ns(
    *, l1_mainloop_ns: ArrayLike, l2_mainloop_ns: ArrayLike, l1_tiles: ArrayLike, l2_tiles: ArrayLike
) -> Floats:
    """Equation 12: ``G_int = T_L2 + (n1/n2)*T_L1``; the wave schedule's gap is T_L2 alone."""
    inserted = _inserted_ns(l1_mainloop_ns, l1_tiles, l2_tiles)
    return nonnegative("l2_mainloop_ns", l2_mainloop_ns) + inserted


def interleaved_overhead_ns(
    *, wave_overhead_ns: ArrayLike, l1_mainloop_ns: ArrayLike, l1_tiles: ArrayLike, l2_tiles: ArrayLike
) -> Floats:
    """Equation 13: ``dT_int = [dT_wave - (n1/n2)*T_L1]+``."""
    inserted = _inserted_ns(l1_mainloop_ns, l1_tiles, l2_tiles)
    return positive_part(nonnegative("wave_overhead_ns", wave_overhead_ns) - inserted)


def interleaved_injection_bytes_per_s(
    *,
    l1_mainloop_ns: ArrayLike,
    l2_mainloop_ns: ArrayLike,
    l1_tiles: ArrayLike,
    l2_tiles: ArrayLike,
    free_issue_ns: ArrayLike,
    volume_bytes: ArrayLike,
) -> Floats:
    """Left side of equation 14: ``n2*V / (n2*(T0 + T_L2) + n1*T_L1)``."""
    n2 = positive("l2_tiles", l2_tiles)
    linear2 = n2 * burst_gap.period_ns(issue_ns=free_issue_ns, gap_ns=l2_mainloop_ns)
    linear1 = nonnegative("l1_tiles", l1_tiles) * nonnegative("l1_mainloop_ns", l1_mainloop_ns)
    cycle = positive("cycle time", linear2 + linear1)
    return n2 * nonnegative("volume_bytes", volume_bytes) / cycle * NS_PER_S


def interleaving_suffices(
    *,
    l1_mainloop_ns: ArrayLike,
    l2_mainloop_ns: ArrayLike,
    l1_tiles: ArrayLike,
    l2_tiles: ArrayLike,
    free_issue_ns: ArrayLike,
    volume_bytes: ArrayLike,
    drain_bytes_per_s: ArrayLike,
) -> NDArray[np.bool_]:
    """Equation 14 as ``G_int >= G*``: reordering alone removes the steady backpressure.

    Where it fails, the burst volume has to shrink too. The lead D has no part in it.
    """
    gap = interleaved_gap_ns(
        l1_mainloop_ns=l1_mainloop_ns, l2_mainloop_ns=l2_mainloop_ns, l1_tiles=l1_tiles, l2_tiles=l2_tiles
    )
    return gap >= burst_gap.recovery_gap_ns(
        free_issue_ns=free_issue_ns, volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s
    )


def remote_store_span_ns(
    *, free_issue_ns: ArrayLike, overhead_ns: ArrayLike, staging_ns: ArrayLike = 0.0
) -> Floats:
    """T_RS of equation 15: ``T0 + dT_iss`` and the fixed cost of the staging copy."""
    issue = nonnegative("free_issue_ns", free_issue_ns) + nonnegative("overhead_ns", overhead_ns)
    return issue + nonnegative("staging_ns", staging_ns)


def critical_path_stall_ns(*, span_ns: ArrayLike, cover_ns: ArrayLike) -> Floats:
    """Equation 15: ``dt = [T_RS - T_cover]+``, what reaches the Tensor Core role.

    ``cover_ns`` is the mainloop that local staging covers: the next Linear-2 under the wave schedule,
    the inserted Linear-1 where one directly follows under the interleaved one.
    """
    return positive_part(nonnegative("span_ns", span_ns) - nonnegative("cover_ns", cover_ns))


def lead_knee_rows(*, block_n: ArrayLike, producers: ArrayLike, intermediate: ArrayLike) -> Floats:
    """Equation 16: ``D_knee = b_n*K_SM / (2*h_inter)`` scheduler rows, not rounded.

    Under a smaller lead Linear-2 catches up and spins on Linear-1 rows that are not ready.
    """
    width = positive("block_n", block_n) * positive("producers", producers)
    return width / (2.0 * positive("intermediate", intermediate))


def _inserted_ns(l1_mainloop_ns: ArrayLike, l1_tiles: ArrayLike, l2_tiles: ArrayLike) -> Floats:
    """Linear-1 time that interleaving puts after each Linear-2 tile: ``(n1/n2)*T_L1``."""
    ratio = nonnegative("l1_tiles", l1_tiles) / positive("l2_tiles", l2_tiles)
    return ratio * nonnegative("l1_mainloop_ns", l1_mainloop_ns)
