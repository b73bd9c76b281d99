"""The Burst-Gap law and the design test (sections 3 and 4.1, equations 1-10).

K producers store bursts of B bytes, V = K*B in aggregate, separated by a gap G of useful work that
stores nothing remote. The platform is (T0, R, Q): the issue time without backpressure
(``free_issue_ns``), the aggregate drain rate (``drain_bytes_per_s``) and the effective outstanding
capacity (``capacity_bytes``).

Every function raises :class:`ValueError` for a negative, NaN or infinite argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xstage_tune.model.checks import NS_PER_S, Floats, nonnegative, positive, positive_part


def drain_ns(*, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike) -> Floats:
    """Equation 1: ``V / R``, the period of the drain-dominated steady state."""
    volume = nonnegative("volume_bytes", volume_bytes)
    return volume / positive("drain_bytes_per_s", drain_bytes_per_s) * NS_PER_S


def period_ns(*, issue_ns: ArrayLike, gap_ns: ArrayLike) -> Floats:
    """Equation 2: ``T_period = T_iss + G``, start to start."""
    return nonnegative("issue_ns", issue_ns) + nonnegative("gap_ns", gap_ns)


def issue_ns(
    *, gap_ns: ArrayLike, free_issue_ns: ArrayLike, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike
) -> Floats:
    """Equations 3 and 8, the Burst-Gap law: ``T_iss = max(T0, V/R - G)``.

    What it exceeds T0 by is the backpressure dT_iss of equations 4, 9 and 18.
    """
    drain = drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s)
    return np.maximum(nonnegative("free_issue_ns", free_issue_ns), drain - nonnegative("gap_ns", gap_ns))


def recovery_gap_ns(
    *, free_issue_ns: ArrayLike, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike
) -> Floats:
    """Equation 5: ``G* = [V/R - T0]+``, the smallest gap after which issue is back at T0."""
    drain = drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s)
    return positive_part(drain - nonnegative("free_issue_ns", free_issue_ns))


def peak_outstanding_bytes(
    *, free_issue_ns: ArrayLike, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike
) -> Floats:
    """Equation 6: ``q_peak = [V - R*T0]+``, outstanding at the end of a burst if Q were unlimited."""
    rate = positive("drain_bytes_per_s", drain_bytes_per_s)
    drained = rate * nonnegative("free_issue_ns", free_issue_ns) / NS_PER_S
    return positive_part(nonnegative("volume_bytes", volume_bytes) - drained)


def isolated_issue_ns(
    *,
    free_issue_ns: ArrayLike,
    volume_bytes: ArrayLike,
    drain_bytes_per_s: ArrayLike,
    capacity_bytes: ArrayLike,
) -> Floats:
    """Equation 7: a burst into an empty path, ``T_iss_iso = max(T0, (V - Q) / R)``."""
    excess = nonnegative("volume_bytes", volume_bytes) - nonnegative("capacity_bytes", capacity_bytes)
    wait = excess / positive("drain_bytes_per_s", drain_bytes_per_s) * NS_PER_S
    return np.maximum(nonnegative("free_issue_ns", free_issue_ns), wait)


def steady_period_ns(
    *, gap_ns: ArrayLike, free_issue_ns: ArrayLike, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike
) -> Floats:
    """The period over all gaps, ``max(T0 + G, V/R)``: equation 3 put into equation 2 (section 3.5)."""
    free = nonnegative("free_issue_ns", free_issue_ns)
    drain = drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s)
    return np.maximum(free + nonnegative("gap_ns", gap_ns), drain)


def completion_coupled_period_ns(
    *, gap_ns: ArrayLike, volume_bytes: ArrayLike, drain_bytes_per_s: ArrayLike
) -> Floats:
    """The counterfactual ``G + V/R``: an issuer that waits for remote visibility (section 3.5)."""
    drain = drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s)
    return drain + nonnegative("gap_ns", gap_ns)


def softened_issue_ns(
    *,
    gap_ns: ArrayLike,
    free_issue_ns: ArrayLike,
    volume_bytes: ArrayLike,
    drain_bytes_per_s: ArrayLike,
    width_fraction: ArrayLike,
) -> Floats:
    """The Burst-Gap law with a rounded corner at G*, as hardware shows it.

    ``max(a, b) + w*log1p(exp(-|a - b| / w))`` with ``a = T0``, ``b = V/R - G`` and
    ``w = width_fraction * V/R``. It lies above equation 3 by at most ``w*ln 2``, at G*, and tends to
    it as ``width_fraction`` goes to 0; at 0 it is equation 3.
    """
    free = nonnegative("free_issue_ns", free_issue_ns)
    drain = drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s)
    limited = drain - nonnegative("gap_ns", gap_ns)
    width = nonnegative("width_fraction", width_fraction) * drain
    # Beyond 700 widths the softening underflows; the cap also keeps a width of zero finite.
    distance = np.minimum(np.abs(free - limited), 700.0 * width) / np.where(width > 0, width, 1.0)
    return np.maximum(free, limited) + width * np.log1p(np.exp(-distance))


def injection_bytes_per_s(*, gap_ns: ArrayLike, free_issue_ns: ArrayLike, volume_bytes: ArrayLike) -> Floats:
    """Left side of equation 10's rate bound: ``V / (T0 + G)``, what the kernel asks of the path."""
    period = period_ns(issue_ns=free_issue_ns, gap_ns=gap_ns)
    return nonnegative("volume_bytes", volume_bytes) / positive("free_issue_ns + gap_ns", period) * NS_PER_S


@dataclass(frozen=True, slots=True)
class DesignTest:
    """Both bounds of equation 10; arrays have the broadcast shape of the arguments."""

    injection_bytes_per_s: Floats
    peak_outstanding_bytes: Floats
    rate_ok: NDArray[np.bool_]
    capacity_ok: NDArray[np.bool_]

    @property
    def satisfied(self) -> NDArray[np.bool_]:
        """True where the model sees no backpressure: piggyback. False: reshape."""
        return self.rate_ok & self.capacity_ok


def design_test(
    *,
    gap_ns: ArrayLike,
    free_issue_ns: ArrayLike,
    volume_bytes: ArrayLike,
    drain_bytes_per_s: ArrayLike,
    capacity_bytes: ArrayLike,
) -> DesignTest:
    """Equation 10: ``V / (T0 + G) <= R`` and ``[V - R*T0]+ <= Q``."""
    peak = peak_outstanding_bytes(
        free_issue_ns=free_issue_ns, volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s
    )
    recovery = recovery_gap_ns(
        free_issue_ns=free_issue_ns, volume_bytes=volume_bytes, drain_bytes_per_s=drain_bytes_per_s
    )
    return DesignTest(
        injection_bytes_per_s=injection_bytes_per_s(
            gap_ns=gap_ns, free_issue_ns=free_issue_ns, volume_bytes=volume_bytes
        ),
        peak_outstanding_bytes=peak,
        # G >= G* is the rate bound rearranged, and holds exactly at the G* that equation 5 returns.
        rate_ok=nonnegative("gap_ns", gap_ns) >= recovery,
        capacity_ok=peak <= nonnegative("capacity_bytes", capacity_bytes),
    )
