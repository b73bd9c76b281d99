"""How the arbiter divides R among saturating SMs, by SM id.

The law is a hierarchical round robin. Each *group* of SMs has a port with a fixed weight; groups with at
least one active producer share R by weight. Inside a group the active *units* share equally, and so do
the active SMs of a unit; a unit is one SM or ``unit_sms`` neighbours by id (2 for a TPC).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.calibration.ports import Observation, Partition, find_partition
from xstage_tune.calibration.reduce import Floats, PeriodicFigures

#: Relative differences of shares below this mean nothing, however well they repeat.
RESOLUTION = 0.01
#: Service is systematic when repeats of the per-SM shares correlate at least this much.
MIN_CORRELATION = 0.9
UNIT_SIZES = (1, 2)


@dataclass(frozen=True, slots=True)
class PortGroup:
    """SMs behind one port, and the port's fraction of R when all SMs are active."""

    sm_ids: tuple[int, ...]
    share: float


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
    unit_sms: int
    systematic: bool
    repeat_correlation: float
    repeats: int
    producers: int  # of the runs that the shares come from
    predictions: tuple[Prediction, ...]  # by rising K, the largest K included


def fit_arbitration(runs: Sequence[PeriodicFigures]) -> ArbitrationFit:
    """Find the groups from saturated runs of one flavour; the largest K gives weights and sizes.

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
    systematic = correlation >= MIN_CORRELATION and float(weight.std() / weight.mean()) > noise
    fewer = _observations(runs, producers, sm_ids)

    one_port = np.zeros(len(sm_ids), dtype=np.int64)
    partition, unit_sms = (
        Partition(one_port, np.arange(len(sm_ids)), np.full(len(sm_ids), 1 / len(sm_ids))),
        1,
    )
    if systematic:
        partition, unit_sms = find_partition(sm_ids, weight, fewer, noise, UNIT_SIZES)
    return ArbitrationFit(
        groups=_groups(partition, sm_ids),
        unit_sms=unit_sms,
        systematic=systematic,
        repeat_correlation=correlation,
        repeats=len(full),
        producers=producers,
        predictions=_predictions(partition, [*fewer, Observation(np.arange(len(sm_ids)), weight)]),
    )


def _repeats(runs: Sequence[PeriodicFigures]) -> list[PeriodicFigures]:
    """The runs of the largest K: of its most repeated burst size, else of all sizes."""
    largest = max(run.point.producers for run in runs)
    at_largest = [run for run in runs if run.point.producers == largest]
    by_size: dict[int, list[PeriodicFigures]] = {}
    for run in at_largest:
        by_size.setdefault(run.point.burst_bytes, []).append(run)
    most = max(by_size.values(), key=lambda same: (len(same), same[0].point.burst_bytes))
    return most if len(most) > 1 else at_largest


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
            share=float(partition.weight[partition.port == port].sum()),
        )
        for port in np.unique(partition.port)
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
