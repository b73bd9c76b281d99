"""MegaMoE: expert-wave and interleaved schedules (section 4.2, equations 11-16).

One Linear-2 tile stores its Combine bytes Vt; the K_act producers whose tile boundaries align make
the burst ``V = K_act*Vt``. T_L1 and T_L2 (``l1_mainloop_ns``, ``l2_mainloop_ns``) are the mainloop
times of one tile, and a steady cycle holds n1 Linear-1 and n2 Linear-2 tiles.

These are steady-state laws, for the design test. Real Linear-2 runs are finite and start on a drained path:
:mod:`xstage_tune.model.finite_run` has the closed form of that, the event simulation the time.
Every function raises :class:`ValueError` for a negative, NaN or infinite argument.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from xstage_tune.model.checks import Floats, nonnegative, positive, positive_part


def interleaved_gap_ns(
    *, l1_mainloop_ns: ArrayLike, l2_mainloop_ns: ArrayLike, l1_tiles: ArrayLike, l2_tiles: ArrayLike
) -> Floats:
    """Equation 12: ``G_int = T_L2 + (n1/n2)*T_L1``; the wave schedule's gap is T_L2 alone.

    At this gap the Burst-Gap law (equation 3) is equation 11 where n1 is 0, else 13, and the rate bound
    (equation 10) is equation 14: interleaving suffices where G_int >= G*. The lead D has no part in it.
    """
    ratio = nonnegative("l1_tiles", l1_tiles) / positive("l2_tiles", l2_tiles)
    inserted = ratio * nonnegative("l1_mainloop_ns", l1_mainloop_ns)
    return nonnegative("l2_mainloop_ns", l2_mainloop_ns) + inserted


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
