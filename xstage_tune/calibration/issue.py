"""T0(K, B), the issue time without backpressure, from the plateau at large gaps (section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.calibration.bootstrap import generator, interval95, resampled_quantiles
from xstage_tune.calibration.reduce import Floats, PeriodicFigures
from xstage_tune.model import burst_gap

#: A plateau run may use at most this fraction of the path, so that its queue empties between bursts.
PLATEAU_LOAD = 0.6
#: A burst whose peak outstanding volume exceeds this fraction of Q may already stall on capacity: the first
#: producers do from about two thirds of Q on, where ports are served unevenly.
CAPACITY_MARGIN = 0.6

#: Of a plateau's bursts: what disturbs an issue only ever lengthens it.
FREE_QUANTILE = 0.25

CurveKey = tuple[StoreFlavour, int]


@dataclass(frozen=True, slots=True)
class Plateau:
    """T0 of one (flavour, K, B)."""

    flavour: StoreFlavour
    producers: int
    burst_bytes: int
    ns: float
    ci95: tuple[float, float] | None
    bursts: int
    gap_ns: float
    #: The smaller K that it was scaled from, where this K stalls on capacity even at large gaps.
    borrowed_from: int | None = None

    @property
    def key(self) -> CurveKey:
        """Which curve the point belongs to."""
        return self.flavour, self.producers


class IssueModel:
    """T0 as one monotone curve over B for each (flavour, K).

    Args:
        plateaus: at least one point; of each flavour that is asked for, at least one.
    """

    def __init__(self, plateaus: Iterable[Plateau]) -> None:
        by_curve: dict[CurveKey, list[Plateau]] = {}
        for plateau in sorted(plateaus, key=lambda p: (p.flavour, p.producers, p.burst_bytes)):
            by_curve.setdefault(plateau.key, []).append(plateau)
        self.plateaus = tuple(plateau for curve in by_curve.values() for plateau in curve)
        self._curves = {key: _monotone(curve) for key, curve in by_curve.items()}

    def measured(self, plateau: Plateau) -> float:
        """The curve's value at one of its own points: the plateau after the monotone fit."""
        return self.free_issue_ns(plateau.flavour, plateau.producers, plateau.burst_bytes)

    def free_issue_ns(self, flavour: StoreFlavour, producers: int, burst_bytes: float) -> float:
        """T0 in ns, linear between points and beyond the last two.

        A K that was not measured takes the curve of the nearest one by ratio: T0 depends little on K.

        Raises:
            KeyError: nothing of this flavour was measured.
        """
        counts = [k for curve_flavour, k in self._curves if curve_flavour == flavour]
        if not counts:
            raise KeyError(flavour)
        nearest = min(counts, key=lambda k: (abs(np.log(k / producers)), k))
        sizes, values = self._curves[flavour, nearest]
        if burst_bytes <= sizes[-1] or len(sizes) == 1:
            return float(np.interp(burst_bytes, sizes, values))
        slope = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
        return float(values[-1] + slope * (burst_bytes - sizes[-1]))


def _monotone(curve: Sequence[Plateau]) -> tuple[Floats, Floats]:
    sizes = np.array([plateau.burst_bytes for plateau in curve], dtype=np.float64)
    values = np.array([plateau.ns for plateau in curve])
    return sizes, np.asarray(isotonic_regression(values).x, dtype=np.float64)


def plateau_runs(runs: Sequence[PeriodicFigures], rate_bytes_per_s: float) -> list[PeriodicFigures]:
    """The largest-gap runs of each (flavour, K, B) that leave the path idle in between.

    Args:
        runs: periodic runs of one path.
        rate_bytes_per_s: the highest aggregate rate seen on the path.
    """
    largest: dict[tuple[StoreFlavour, int, int], int] = {}
    for run in runs:
        key = (run.point.flavour, run.point.producers, run.point.burst_bytes)
        largest[key] = max(largest.get(key, 0), run.point.gap_ns)
    return [
        run
        for run in runs
        if run.point.gap_ns > 0
        and run.point.gap_ns == largest[run.point.flavour, run.point.producers, run.point.burst_bytes]
        and run.bytes_per_s <= PLATEAU_LOAD * rate_bytes_per_s
    ]


def measure_plateaus(runs: Iterable[PeriodicFigures], seed: int) -> list[Plateau]:
    """T0 of each (flavour, K, B): the lower quartile over bursts of the median over producers.

    T0 is issue without backpressure, so a producer that waited has no part in it: now and then one of many
    waits microseconds for a full port, and would move a mean by a tenth. Nor has a launch that is slow as
    a whole: of large bursts about one launch in four takes 4 to 8% longer from its first burst to its last.
    The interval resamples bursts.
    """
    by_key: dict[tuple[StoreFlavour, int, int], list[PeriodicFigures]] = {}
    for run in runs:
        key = (run.point.flavour, run.point.producers, run.point.burst_bytes)
        if len(run.burst_issue_ns):
            by_key.setdefault(key, []).append(run)
    return [_plateau(*key, by_key[key], seed) for key in sorted(by_key)]


def _plateau(
    flavour: StoreFlavour, producers: int, burst_bytes: int, runs: Sequence[PeriodicFigures], seed: int
) -> Plateau:
    bursts = np.concatenate([run.burst_issue_ns for run in runs])
    rng = generator(seed, "issue", flavour, producers, burst_bytes)
    return Plateau(
        flavour=flavour,
        producers=producers,
        burst_bytes=burst_bytes,
        ns=float(np.quantile(bursts, FREE_QUANTILE)),
        ci95=interval95(resampled_quantiles(bursts, FREE_QUANTILE, rng)),
        bursts=len(bursts),
        gap_ns=float(np.mean([run.gap_ns for run in runs])),
    )


def without_capacity_stall(
    plateaus: Sequence[Plateau], capacity_bytes: Mapping[CurveKey, float], drain_bytes_per_s: float
) -> list[Plateau]:
    """Replace the plateaus that equation 6 says may stall on capacity.

    A burst with ``q_peak`` above ``CAPACITY_MARGIN`` of Q stalls however large the gap. Its T0 is taken
    from the largest smaller K that is free at this B, scaled by the ratio of the two curves at the
    largest B where both are free; where there is none it is left out.

    Args:
        plateaus: measured points.
        capacity_bytes: an estimate of Q by (flavour, K); a curve without one is taken as free.
        drain_bytes_per_s: R.
    """
    free = {
        (*plateau.key, plateau.burst_bytes): plateau
        for plateau in plateaus
        if _is_free(plateau, capacity_bytes.get(plateau.key), drain_bytes_per_s)
    }
    kept: list[Plateau] = []
    for plateau in plateaus:
        own = free.get((*plateau.key, plateau.burst_bytes)) or _borrowed(plateau, list(free.values()))
        if own is not None:
            kept.append(own)
    return kept


def _is_free(plateau: Plateau, capacity_bytes: float | None, drain_bytes_per_s: float) -> bool:
    if capacity_bytes is None:
        return True
    peak = burst_gap.peak_outstanding_bytes(
        free_issue_ns=plateau.ns,
        volume_bytes=plateau.producers * plateau.burst_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
    )
    return bool(peak <= CAPACITY_MARGIN * capacity_bytes)


def _borrowed(stalled: Plateau, free: Sequence[Plateau]) -> Plateau | None:
    own = {p.burst_bytes: p.ns for p in free if p.key == stalled.key}
    donors = [
        p
        for p in free
        if p.flavour == stalled.flavour
        and p.burst_bytes == stalled.burst_bytes
        and p.producers < stalled.producers
    ]
    if not donors:
        return None
    donor = max(donors, key=lambda p: p.producers)
    common = [p for p in free if p.key == donor.key and p.burst_bytes in own]
    reference = max(common, key=lambda p: p.burst_bytes, default=None)
    scale = own[reference.burst_bytes] / reference.ns if reference is not None else 1.0
    return Plateau(
        flavour=stalled.flavour,
        producers=stalled.producers,
        burst_bytes=stalled.burst_bytes,
        ns=donor.ns * scale,
        ci95=None,
        bursts=donor.bursts,
        gap_ns=donor.gap_ns,
        borrowed_from=donor.producers,
    )
