"""How the arbiter divides R among saturating SMs, by SM id.

The law is a round robin on two levels. Each *group* of SMs has a port; ports lie on *branches*. Branches with
an active producer share R by weight, so do the ports with one inside a branch, and the active SMs of a port
share equally. On an H200 the ports are the GPU's CPCs (4 or 6 SMs each) and the branches its two halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.calibration.ports import Observation, Partition, find_partition, one_port
from xstage_tune.calibration.reduce import Floats, PeriodicFigures

#: Relative differences of shares below this mean nothing, however well they repeat.
RESOLUTION = 0.01
#: Unequal shares are systematic when repeats of them correlate at least this much.
MIN_CORRELATION = 0.9


@dataclass(frozen=True, slots=True)
class PortGroup:
    """SMs behind one port, and the port's fraction of R when all SMs are active."""

    sm_ids: tuple[int, ...]
    share: float
    branch: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """The law against the shares measured with one number of producers."""

    producers: int
    median_error: float  # of a share, relative
    max_error: float


@dataclass(frozen=True, slots=True)
class ArbitrationFit:
    """The group law, and what speaks for it."""

    groups: tuple[PortGroup, ...]
    repeat_correlation: float
    repeats: int
    producers: int  # of the runs that the weights come from
    predictions: tuple[Prediction, ...]  # placements that the law was not fitted to, by rising K
    fitted_error: float  # largest relative error of a share with all SMs active

    @property
    def systematic(self) -> bool:
        """True when the SMs are not all served alike."""
        return len(self.groups) > 1


def fit_arbitration(runs: Sequence[PeriodicFigures]) -> ArbitrationFit:
    """Find the groups from saturated runs of one flavour.

    Runs with the most producers give the weights, runs with chosen idle SMs the groups and branches. Runs
    with SMs of the hardware's choice are predicted; where no idle SMs were chosen, they are fitted instead.

    Args:
        runs: drain-dominated runs, at least one.
    """
    full = _repeats(runs)
    producers = full[0].point.producers
    sm_ids = sorted(set.intersection(*(set(run.sm_ids.tolist()) for run in full)))
    table = np.array([_shares(run, sm_ids) for run in full])
    weight = table.mean(axis=0) / table.mean(axis=0).sum()
    noise = max(_noise(table), RESOLUTION)
    correlation = _correlation(table)
    chosen = _observations([run for run in runs if run.point.idle_sms], producers, sm_ids)
    placed = _observations([run for run in runs if not run.point.idle_sms], producers, sm_ids)

    unequal = float(weight.std() / weight.mean()) > noise
    if unequal and correlation < MIN_CORRELATION:
        partition = one_port(weight)
    else:
        partition = find_partition(weight, chosen or placed, noise)
    all_active = Observation(np.arange(len(sm_ids)), weight)
    return ArbitrationFit(
        groups=_groups(partition, sm_ids),
        repeat_correlation=correlation,
        repeats=len(full),
        producers=producers,
        predictions=_predictions(partition, placed),
        fitted_error=float(np.abs(partition.errors(all_active)).max()),
    )


def _repeats(runs: Sequence[PeriodicFigures]) -> list[PeriodicFigures]:
    """The runs of the largest K: those of the longest window that was repeated, else all.

    Shares scatter with the bursts that a window counts, so short windows would hide how well they repeat.
    """
    largest = max(run.point.producers for run in runs)
    at_largest = [run for run in runs if run.point.producers == largest]
    by_window: dict[tuple[int, int], list[PeriodicFigures]] = {}
    for run in at_largest:
        by_window.setdefault((run.point.window_ns, run.point.burst_bytes), []).append(run)
    repeated = [window for window, same in by_window.items() if len(same) > 1]
    return by_window[max(repeated)] if repeated else at_largest


def _shares(run: PeriodicFigures, sm_ids: Sequence[int]) -> Floats:
    """Fractions of the run's aggregate rate, in the order of ``sm_ids``."""
    rate = dict(zip(run.sm_ids.tolist(), run.lane_bytes_per_s.tolist(), strict=True))
    shares: Floats = np.array([rate[sm] for sm in sm_ids]) / run.lane_bytes_per_s.sum()
    return shares


def _observations(
    runs: Sequence[PeriodicFigures], producers: int, sm_ids: Sequence[int]
) -> list[Observation]:
    """Shares of each set of fewer active SMs, averaged over its runs, by rising K."""
    position = {sm: index for index, sm in enumerate(sm_ids)}
    by_set: dict[tuple[int, ...], list[Floats]] = {}
    for run in runs:
        active = sorted(run.sm_ids.tolist())
        if run.point.producers < producers and all(sm in position for sm in active):
            by_set.setdefault(tuple(active), []).append(_shares(run, active))
    return [
        Observation(np.array([position[sm] for sm in active]), np.mean(shares, axis=0))
        for active, shares in sorted(by_set.items(), key=lambda item: (len(item[0]), item[0]))
    ]


def _noise(table: Floats) -> float:
    """Error of the mean relative share over repeats, ``table`` being ``[repeats, SMs]``."""
    if len(table) < 2:
        return 0.0
    variance = (table / table.mean()).var(axis=0, ddof=1).mean()
    return float(np.sqrt(variance / len(table)))


def _correlation(table: Floats) -> float:
    """Mean correlation of the per-SM shares over pairs of repeats; 0 where there is no pair or pattern."""
    if len(table) < 2 or (table.std(axis=1) < 1e-9 * table.mean()).any():
        return 0.0
    correlations: Floats = np.atleast_2d(np.corrcoef(table))
    pairs = correlations[np.triu_indices(len(table), k=1)]
    return float(np.clip(pairs.mean(), -1.0, 1.0))


def _groups(partition: Partition, sm_ids: Sequence[int]) -> tuple[PortGroup, ...]:
    groups = [
        PortGroup(
            sm_ids=tuple(sm for sm, member in zip(sm_ids, partition.port == port, strict=True) if member),
            share=float(share),
            branch=int(branch),
        )
        for port, (share, branch) in enumerate(zip(partition.port_weight, partition.branch, strict=True))
    ]
    return tuple(sorted(groups, key=lambda group: group.sm_ids))


def _predictions(partition: Partition, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
    by_count: dict[int, list[Floats]] = {}
    for observation in observations:
        errors = np.abs(partition.errors(observation))
        by_count.setdefault(len(observation.position), []).append(errors)
    return tuple(
        Prediction(
            producers=producers,
            median_error=float(np.median(np.concatenate(errors))),
            max_error=float(np.concatenate(errors).max()),
        )
        for producers, errors in sorted(by_count.items())
    )
