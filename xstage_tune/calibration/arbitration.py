"""How the arbiter divides R among saturating SMs, by SM id.

The law is a hierarchical round robin. Each *group* of SMs has a port with a fixed weight; groups with at
least one active producer share R by weight. Inside a group the active *units* share equally, and so do
the active SMs of a unit; a unit is one SM or ``unit_sms`` neighbours by id (2 for a TPC).

With all SMs active, SMs of equal service cannot be told to have one port or several: the shares of runs
with fewer producers tell, since they depend on how many neighbours are active behind each port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.calibration.levels import levels
from xstage_tune.calibration.reduce import Floats, Ints, PeriodicFigures

#: Relative differences of shares below this mean nothing, however well they repeat.
RESOLUTION = 0.01
#: Service is systematic when repeats of the per-SM shares correlate at least this much.
MIN_CORRELATION = 0.9
UNIT_SIZES = (1, 2)

Shares = Mapping[int, float]  # SM id to fraction of the aggregate rate


@dataclass(frozen=True, slots=True)
class PortGroup:
    """SMs behind one port, and the port's fraction of R when all SMs are active."""

    sm_ids: tuple[int, ...]
    share: float


@dataclass(frozen=True, slots=True)
class ArbitrationLaw:
    """Groups and units of the hierarchical round robin."""

    groups: tuple[PortGroup, ...]
    unit_sms: int = 1

    def shares(self, sm_ids: Sequence[int]) -> dict[int, float]:
        """Fraction of R of each saturating SM when exactly ``sm_ids`` are active.

        SMs outside every group (none, once all SMs were measured) are given nothing.
        """
        active = set(sm_ids)
        shares = dict.fromkeys(sm_ids, 0.0)
        members = [[sm for sm in group.sm_ids if sm in active] for group in self.groups]
        populated = sum(group.share for group, present in zip(self.groups, members, strict=True) if present)
        for group, present in zip(self.groups, members, strict=True):
            units: dict[int, list[int]] = {}
            for sm in present:
                units.setdefault(sm // self.unit_sms, []).append(sm)
            for unit in units.values():
                for sm in unit:
                    shares[sm] = group.share / populated / len(units) / len(unit)
        return shares


@dataclass(frozen=True, slots=True)
class Prediction:
    """The law against the shares measured with one number of producers."""

    producers: int
    median_error: float  # of a share, relative
    max_error: float
    runs: int


@dataclass(frozen=True, slots=True)
class ArbitrationFit:
    """The group law, and what speaks for it."""

    law: ArbitrationLaw
    systematic: bool
    repeat_correlation: float
    repeats: int
    producers: int  # of the runs that the shares come from
    predictions: tuple[Prediction, ...]  # by rising K, the largest K included


def fit_arbitration(runs: Sequence[PeriodicFigures]) -> ArbitrationFit:
    """Find the groups from saturated runs of one flavour, the largest K giving shares and sizes.

    Args:
        runs: drain-dominated runs, at least one.
    """
    full = _repeats(runs)
    producers = full[0].point.producers
    sm_ids = sorted(set.intersection(*(set(run.sm_ids.tolist()) for run in full)))
    table = np.array([[_shares(run)[sm] for sm in sm_ids] for run in full])
    mean = table.mean(axis=0) / table.mean()  # 1 is an even share
    noise = max(_noise(table), RESOLUTION)
    correlation = _correlation(table)

    fewer = [run for run in runs if run.point.producers < producers and set(run.sm_ids.tolist()) <= {*sm_ids}]
    systematic = correlation >= MIN_CORRELATION and float(mean.std()) > noise
    law = ArbitrationLaw((PortGroup(tuple(sm_ids), 1.0),))
    if systematic:
        by_level = levels(mean, noise)
        candidates = [_law(sm_ids, mean, by_level, 1)]
        for unit_sms in UNIT_SIZES:
            split = _split_levels(sm_ids, by_level, [_shares(run) for run in fewer], unit_sms, noise)
            candidates += [_law(sm_ids, mean, by_level, unit_sms), _law(sm_ids, mean, split, unit_sms)]
        law = min(candidates, key=lambda law: _criterion(law, [*full, *fewer], noise))
    return ArbitrationFit(
        law=law,
        systematic=systematic,
        repeat_correlation=correlation,
        repeats=len(full),
        producers=producers,
        predictions=_predictions(law, [*full, *fewer]),
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


def _shares(run: PeriodicFigures) -> dict[int, float]:
    total = run.lane_bytes_per_s.sum()
    return dict(zip(run.sm_ids.tolist(), (run.lane_bytes_per_s / total).tolist(), strict=True))


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


def _law(sm_ids: Sequence[int], mean_share: Floats, labels: Ints, unit_sms: int) -> ArbitrationLaw:
    total = mean_share.sum()
    groups = []
    for label in np.unique(labels):
        inside = labels == label
        members = tuple(sm for sm, keep in zip(sm_ids, inside, strict=True) if keep)
        groups.append(PortGroup(members, float(mean_share[inside].sum() / total)))
    return ArbitrationLaw(tuple(sorted(groups, key=lambda group: group.sm_ids)), unit_sms)


def _split_levels(
    sm_ids: Sequence[int], by_level: Ints, runs: Sequence[Shares], unit_sms: int, noise: float
) -> Ints:
    """Split SMs of equal service wherever runs with fewer producers serve them unequally.

    In each run units are clustered by their service. Two units that any run puts at different levels
    have different ports; each unit joins the group that it agrees with in most runs.
    """
    units = np.array(sm_ids) // unit_sms
    signatures = [_unit_levels(run, unit_sms, noise) for run in runs]
    labels = np.empty(len(sm_ids), dtype=np.int64)
    groups: list[tuple[int, dict[int, int]]] = []  # (level at the largest K, level by run)
    assigned: dict[tuple[int, int], int] = {}
    seen_in = {int(unit): sum(int(unit) in signature for signature in signatures) for unit in units}
    # Units seen in most runs first: they define the groups, the others then join.
    for position in sorted(range(len(sm_ids)), key=lambda i: (-seen_in[int(units[i])], i)):
        key = (int(by_level[position]), int(units[position]))
        if key not in assigned:
            own = {run: s[key[1]] for run, s in enumerate(signatures) if key[1] in s}
            assigned[key] = _join(groups, key[0], own)
        labels[position] = assigned[key]
    return labels


def _unit_levels(run: Shares, unit_sms: int, noise: float) -> dict[int, int]:
    service: dict[int, float] = {}
    for sm, share in run.items():
        service[sm // unit_sms] = service.get(sm // unit_sms, 0.0) + share
    values = np.array(list(service.values()))
    labels = levels(np.log(values), noise)
    return dict(zip(service, labels.tolist(), strict=True))


def _join(groups: list[tuple[int, dict[int, int]]], level: int, own: Mapping[int, int]) -> int:
    """Index of the group that a unit belongs to, made if there is none; the group learns its levels."""
    fitting = [
        (sum(run in known for run in own), -index)
        for index, (group_level, known) in enumerate(groups)
        if group_level == level and all(known.get(run, label) == label for run, label in own.items())
    ]
    if not fitting:
        groups.append((level, dict(own)))
        return len(groups) - 1
    index = -max(fitting)[1]
    for run, label in own.items():
        groups[index][1].setdefault(run, label)
    return index


def _criterion(law: ArbitrationLaw, runs: Sequence[PeriodicFigures], noise: float) -> float:
    """BIC of the law over all runs: relative errors of shares, one parameter a group."""
    squared = np.concatenate([_relative_errors(law, run) ** 2 for run in runs])
    parameters = len(law.groups) + (law.unit_sms > 1)
    return float(squared.size * np.log(squared.mean() + noise**2) + parameters * np.log(squared.size))


def _relative_errors(law: ArbitrationLaw, run: PeriodicFigures) -> Floats:
    measured = _shares(run)
    predicted = law.shares(list(measured))
    return np.array([predicted[sm] / share - 1 for sm, share in measured.items()])


def _predictions(law: ArbitrationLaw, runs: Sequence[PeriodicFigures]) -> tuple[Prediction, ...]:
    by_count: dict[int, list[Floats]] = {}
    for run in runs:
        by_count.setdefault(run.point.producers, []).append(np.abs(_relative_errors(law, run)))
    return tuple(
        Prediction(
            producers=producers,
            median_error=float(np.median(np.concatenate(errors))),
            max_error=float(np.concatenate(errors).max()),
            runs=len(errors),
        )
        for producers, errors in sorted(by_count.items())
    )
