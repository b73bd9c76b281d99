"""Which SMs share a port of the arbiter: a search over partitions, by how well they predict shares.

With all SMs active, SMs of equal service cannot be told to have one port or several. Runs with fewer
producers tell: there a port's SMs each get more, the fewer of them are active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from xstage_tune.calibration.levels import levels
from xstage_tune.calibration.reduce import Floats, Ints

#: More ports than this are no arbiter but a wrong idea of what a unit is.
MAX_PORTS = 12


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
        split, open_places = _split_levels(by_level, unit, fewer, noise)
        candidates.append((Partition(by_level, unit, weight), unit_sms))
        if split.max() < MAX_PORTS:
            settled = _settle(Partition(split, unit, weight), open_places, by_level, score)
            candidates.append((settled, unit_sms))
    return min(candidates, key=lambda candidate: score(candidate[0]))


@dataclass(slots=True)
class _Port:
    """A port while it is being found: its level with all active, and by observation."""

    level: int
    known: dict[int, int]

    def admits(self, level: int, own: Mapping[int, int]) -> bool:
        """False where an observation serves the unit and the port unequally."""
        return self.level == level and all(self.known.get(n, label) == label for n, label in own.items())


def _split_levels(
    by_level: Ints, unit: Ints, fewer: Sequence[Observation], noise: float
) -> tuple[Ints, dict[tuple[int, int], list[int]]]:
    """A first partition: equal service with all active, and never unequal with fewer.

    In each observation units are clustered by service. A unit that disagrees with every port found so
    far founds one; a unit that agrees with just one port joins it.

    Returns:
        Port of each SM, and the ports possible for each (level, unit) that agrees with several, of which
        it was given the first.
    """
    signatures = [_unit_levels(observation, unit, noise) for observation in fewer]
    keys = list(dict.fromkeys(zip(by_level.tolist(), unit.tolist(), strict=True)))
    own = {key: {n: s[key[1]] for n, s in enumerate(signatures) if key[1] in s} for key in keys}
    ports: list[_Port] = []
    place: dict[tuple[int, int], int] = {}
    # Units seen most often first: they found the ports that the others join.
    for key in sorted(keys, key=lambda key: -len(own[key])):
        admitting = [index for index, port in enumerate(ports) if port.admits(key[0], own[key])]
        if not admitting:
            ports.append(_Port(key[0], dict(own[key])))
            place[key] = len(ports) - 1
        elif len(admitting) == 1:
            ports[admitting[0]].known |= own[key]
            place[key] = admitting[0]
    open_places = {
        key: [index for index, port in enumerate(ports) if port.admits(key[0], own[key])]
        for key in keys
        if key not in place
    }
    place |= {key: admitting[0] for key, admitting in open_places.items() if admitting}
    # What was learnt since may leave an open unit no port at all: it stays with its level's first.
    first = {level: min(i for i, port in enumerate(ports) if port.level == level) for level, _ in keys}
    labels = [place.get(key, first[key[0]]) for key in zip(by_level.tolist(), unit.tolist(), strict=True)]
    return np.array(labels, dtype=np.int64), open_places


def _unit_levels(observation: Observation, unit: Ints, noise: float) -> dict[int, int]:
    active, member = np.unique(unit[observation.position], return_inverse=True)
    service = np.bincount(member, weights=observation.share)
    return dict(zip(active.tolist(), levels(np.log(service), noise).tolist(), strict=True))


def _settle(
    partition: Partition,
    open_places: Mapping[tuple[int, int], Sequence[int]],
    by_level: Ints,
    score: Callable[[Partition], float],
) -> Partition:
    """Place the open units, then merge ports of one level, each by the largest fall of the score.

    An open unit was absent from the runs that tell its possible ports apart. But how many units of a
    port are active shows in the shares of the others, so its place has a best answer too.
    """

    def moves(current: Ints) -> Iterator[Ints]:
        for (level, unit), ports in open_places.items():
            members = (by_level == level) & (partition.unit == unit)
            yield from (np.where(members, port, current) for port in ports)

    def merges(current: Ints) -> Iterator[Ints]:
        for level in np.unique(by_level):
            for first, second in combinations(np.unique(current[by_level == level]), 2):
                yield np.where(current == second, first, current)

    return _descend(_descend(partition, moves, score), merges, score)


def _descend(
    partition: Partition,
    neighbours: Callable[[Ints], Iterator[Ints]],
    score: Callable[[Partition], float],
) -> Partition:
    """Go to the best neighbour while that lowers the score."""
    best = score(partition)
    while True:
        candidates = [replace(partition, port=port) for port in neighbours(partition.port)]
        scores = [score(candidate) for candidate in candidates]
        if not scores or min(scores) >= best:
            return partition
        best = min(scores)
        partition = candidates[int(np.argmin(scores))]
