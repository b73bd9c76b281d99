"""Which SMs share a port of the arbiter: a search over partitions, by how well they predict shares.

With all SMs active, SMs of equal service cannot be told to have one port or several. Runs with fewer
producers tell: there a port's SMs each get more, the fewer of them are active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from xstage_tune.calibration.levels import levels
from xstage_tune.calibration.reduce import Floats, Ints

_MAX_PASSES = 10


@dataclass(frozen=True, slots=True)
class Observation:
    """Shares measured with one set of saturating SMs."""

    position: Ints  # [active], into the list of all SMs
    share: Floats  # [active], sums to 1


@dataclass(frozen=True, slots=True)
class Partition:
    """A port for each SM, and the unit of the round robin inside a port. Arrays are ``[SMs]``."""

    port: Ints
    unit: Ints
    weight: Floats  # share of each SM with all active

    def predict(self, position: Ints) -> Floats:
        """Shares when exactly the SMs at ``position`` are active, ``[active]``.

        Ports with an active SM share by weight, active units of a port equally, active SMs of a unit
        equally.
        """
        port, unit = self.port[position], self.unit[position]
        mates = np.bincount(unit)[unit]
        port_units = np.bincount(port, weights=1 / mates)
        port_weight = np.bincount(self.port, weights=self.weight)
        populated = port_weight[: len(port_units)][port_units > 0].sum()
        shares: Floats = port_weight[port] / populated / port_units[port] / mates
        return shares

    def errors(self, observation: Observation) -> Floats:
        """Relative errors of the predicted shares, ``[active]``."""
        errors: Floats = self.predict(observation.position) / observation.share - 1
        return errors

    def criterion(self, observations: Sequence[Observation], noise: float) -> float:
        """Bayesian information criterion: squared relative errors, one parameter a port."""
        squared = np.concatenate([self.errors(observation) for observation in observations]) ** 2
        ports = len(np.unique(self.port))
        return float(squared.size * np.log(squared.mean() + noise**2) + ports * np.log(squared.size))


def find_partition(
    sm_ids: Sequence[int],
    weight: Floats,
    fewer: Sequence[Observation],
    noise: float,
    unit_sizes: Sequence[int],
) -> tuple[Partition, int]:
    """The partition and the unit size that explain all observations best.

    Args:
        sm_ids: all SMs.
        weight: their shares with all active, ``[SMs]``; sums to 1.
        fewer: shares with fewer SMs active.
        noise: relative error of a share, below which differences mean nothing.
        unit_sizes: SMs of neighbouring ids that may make a unit, simplest first.
    """
    observations = [Observation(np.arange(len(sm_ids)), weight), *fewer]
    by_level = levels(weight * len(weight), noise)

    def score(partition: Partition) -> float:
        return partition.criterion(observations, noise)

    candidates: list[tuple[Partition, int]] = []
    for unit_sms in unit_sizes:
        unit = np.unique(np.array(sm_ids) // unit_sms, return_inverse=True)[1].astype(np.int64)
        split = _split_levels(by_level, unit, fewer, noise)
        candidates.append((Partition(by_level, unit, weight), unit_sms))
        candidates.append((_improve(Partition(split, unit, weight), by_level, score), unit_sms))
    return min(candidates, key=lambda candidate: score(candidate[0]))


def _split_levels(by_level: Ints, unit: Ints, fewer: Sequence[Observation], noise: float) -> Ints:
    """A first partition: equal service with all active, and never unequal with fewer.

    In each observation units are clustered by service. A unit joins the port with which it agrees
    in most observations and disagrees in none, else it founds one.
    """
    signatures = [_unit_levels(observation, unit, noise) for observation in fewer]
    seen = np.array([sum(int(u) in signature for signature in signatures) for u in unit])
    port = np.empty(len(unit), dtype=np.int64)
    founded: list[tuple[int, dict[int, int]]] = []  # level with all active, level by observation
    joined: dict[tuple[int, int], int] = {}
    # Units seen most often first: they found the ports that the others join.
    for position in np.lexsort((np.arange(len(unit)), -seen)):
        key = (int(by_level[position]), int(unit[position]))
        if key not in joined:
            own = {number: s[key[1]] for number, s in enumerate(signatures) if key[1] in s}
            joined[key] = _join(founded, key[0], own)
        port[position] = joined[key]
    return port


def _unit_levels(observation: Observation, unit: Ints, noise: float) -> dict[int, int]:
    active, member = np.unique(unit[observation.position], return_inverse=True)
    service = np.bincount(member, weights=observation.share)
    return dict(zip(active.tolist(), levels(np.log(service), noise).tolist(), strict=True))


def _join(founded: list[tuple[int, dict[int, int]]], level: int, own: Mapping[int, int]) -> int:
    """Index of the port that a unit joins or founds; the port learns the unit's levels."""
    fitting = [
        (sum(number in known for number in own), -index)
        for index, (port_level, known) in enumerate(founded)
        if port_level == level and all(known.get(number, label) == label for number, label in own.items())
    ]
    if not fitting:
        founded.append((level, dict(own)))
        return len(founded) - 1
    index = -max(fitting)[1]
    for number, label in own.items():
        founded[index][1].setdefault(number, label)
    return index


def _improve(partition: Partition, by_level: Ints, score: Callable[[Partition], float]) -> Partition:
    """Move units between ports of one level, and merge such ports, while the score falls.

    Units absent from the runs that tell two ports apart were placed arbitrarily; but how many units of
    a port are active shows in the shares of the others, so their place has a best answer too.
    """
    best = score(partition)
    for _ in range(_MAX_PASSES):
        before = best
        for port in _neighbours(partition, by_level):
            candidate = Partition(port, partition.unit, partition.weight)
            candidate_score = score(candidate)
            if candidate_score < best:
                partition, best = candidate, candidate_score
        if best == before:
            break
    return partition


def _neighbours(partition: Partition, by_level: Ints) -> Iterator[Ints]:
    port = partition.port
    for level in np.unique(by_level):
        inside = by_level == level
        ports = np.unique(port[inside])
        for first, second in combinations(ports, 2):
            yield np.where(port == second, first, port)
        for unit in np.unique(partition.unit[inside]):
            members = inside & (partition.unit == unit)
            for target in ports:
                if (port[members] != target).any():
                    yield np.where(members, target, port)
