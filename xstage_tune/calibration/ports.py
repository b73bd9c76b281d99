"""Which SMs share a port of the arbiter: clusters of SMs that are always served alike.

With all SMs active, SMs of equal service cannot be told to have one port or several. Runs in which some SMs
are idle tell: a port's share then goes to fewer SMs, and an idle port's share to the other ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from xstage_tune.calibration.reduce import Floats, Ints

MAX_BRANCHES = 8
#: A port has at least two SMs on average: nobody builds an arbiter per SM and measures it as one.
MIN_SMS_PER_PORT = 2
_SETTLE_PASSES = 10


@dataclass(frozen=True, slots=True)
class Observation:
    """Shares measured with one set of saturating SMs."""

    position: Ints  # [active], into the list of all SMs
    share: Floats  # [active], sums to 1


@dataclass(frozen=True, slots=True)
class Partition:
    """A two-level round robin: SMs behind ports, ports on branches."""

    port: Ints  # [SMs]
    branch: Ints  # [ports]
    weight: Floats  # [SMs], share of each SM with all active

    @property
    def port_weight(self) -> Floats:
        """Share of each port with all SMs active, ``[ports]``."""
        return np.bincount(self.port, weights=self.weight, minlength=len(self.branch)).astype(np.float64)

    def predict(self, position: Ints) -> Floats:
        """Shares when exactly the SMs at ``position`` are active, ``[active]``.

        Branches with an active SM share by weight, so do the ports with one inside a branch, and the
        active SMs of a port share equally.
        """
        return self._shares(position, np.zeros_like(position))

    def _shares(self, position: Ints, run: Ints) -> Floats:
        """Shares of the SMs at ``position``, each in its ``run``, whose other SMs are idle, ``[active]``."""
        runs, ports, branches = run[-1] + 1, len(self.branch), self.branch.max() + 1
        port = self.port[position]
        members = np.bincount(run * ports + port, minlength=runs * ports).reshape(runs, ports)
        weight = self.port_weight
        branch_weight = np.bincount(self.branch, weights=weight)
        present_weight = np.bincount(
            (np.arange(runs)[:, None] * branches + self.branch).ravel(),
            weights=(weight * (members > 0)).ravel(),
            minlength=runs * branches,
        ).reshape(runs, branches)
        branch_share = branch_weight / (branch_weight * (present_weight > 0)).sum(axis=1, keepdims=True)
        branch = self.branch[port]
        shares: Floats = branch_share[run, branch] * weight[port] / present_weight[run, branch]
        return shares / members[run, port]

    def errors(self, observation: Observation) -> Floats:
        """Relative errors of the predicted shares, ``[active]``."""
        errors: Floats = self.predict(observation.position) / observation.share - 1
        return errors

    def description_length(self, position: Ints, run: Ints, share: Floats, noise: float) -> float:
        """What the partition costs to state, plus what it leaves unexplained; less is better.

        Gaussian relative errors no smaller than ``noise``, a BIC penalty for each port and branch, and
        the entropy of saying which SM has which port and which port which branch.

        Args:
            position: of the SMs active in each run, ``[active]``, one run after the other.
            run: number of each one's run.
            share: measured for each.
            noise: relative error of a share, below which differences mean nothing.
        """
        squared = (self._shares(position, run) / share - 1) ** 2
        misfit = squared.size * np.log(squared.mean() + noise**2)
        parameters = (len(self.branch) + self.branch.max()) * np.log(squared.size)
        return float(misfit + parameters + 2 * _bits(self.port) + 2 * _bits(self.branch))


def find_partition(weight: Floats, fewer: Sequence[Observation], noise: float) -> Partition:
    """The partition that explains all observations in the fewest bits, as far as a local search sees.

    Args:
        weight: shares with all SMs active, ``[SMs]``; sums to 1.
        fewer: shares with some SMs idle.
        noise: relative error of a share, below which differences mean nothing.
    """
    observations = [Observation(np.arange(len(weight)), weight), *fewer]

    position = np.concatenate([observation.position for observation in observations])
    share = np.concatenate([observation.share for observation in observations])
    run = np.repeat(np.arange(len(observations)), [len(observation.share) for observation in observations])

    def length(partition: Partition) -> float:
        return partition.description_length(position, run, share, noise)

    distances = _distances(_service(len(weight), observations))
    best = min([one_port(weight), *_port_candidates(weight, distances)], key=length)
    while True:
        # Ports first, since branches are told by what whole ports gain; then the two together, since a
        # wrong branch also misplaces SMs.
        better = _descend(best, lambda now: _port_moves(now, distances), length)
        better = min([better, *_branch_candidates(better, fewer)], key=length)
        better = _descend(better, lambda now: chain(_port_moves(now, distances), _branch_moves(now)), length)
        if length(better) >= length(best):
            return best
        best = better


def _descend(
    partition: Partition,
    neighbours: Callable[[Partition], Iterator[Partition]],
    length: Callable[[Partition], float],
) -> Partition:
    """Go to the best neighbour while that saves bits."""
    best = length(partition)
    while True:
        candidates = list(neighbours(partition))
        lengths = [length(candidate) for candidate in candidates]
        if not lengths or min(lengths) >= best:
            return partition
        best = min(lengths)
        partition = candidates[int(np.argmin(lengths))]


def one_port(weight: Floats) -> Partition:
    """All SMs behind one port."""
    return _one_branch(np.zeros(len(weight), dtype=np.int64), weight)


def _service(sms: int, observations: Sequence[Observation]) -> Floats:
    """Logarithm of each SM's share, ``[observations, SMs]``, NaN where it was idle."""
    service = np.full((len(observations), sms), np.nan)
    for row, observation in zip(service, observations, strict=True):
        row[observation.position] = np.log(observation.share)
    return service


def _port_candidates(weight: Floats, distances: Floats) -> list[Partition]:
    """Partitions of every plausible number of ports, all on one branch."""
    most = len(weight) // MIN_SMS_PER_PORT
    return [_one_branch(port, weight) for port in _clusterings(distances, most)]


def _port_moves(partition: Partition, distances: Floats) -> Iterator[Partition]:
    """One port split in two, two merged, or one SM moved to the port next nearest to it."""
    port, branch = partition.port, partition.branch
    ports = len(branch)
    for first, second in combinations(range(ports), 2):
        yield _with_ports(partition, np.where(port == second, first, port), branch)
    for split in range(ports):
        members = np.flatnonzero(port == split)
        for halves in _clusterings(distances[np.ix_(members, members)], min(2, len(members))):
            candidate = port.copy()
            candidate[members[halves == 1]] = ports
            yield _with_ports(partition, candidate, np.append(branch, branch[split]))
    if ports > 1:
        mean = _mean_distances(port, distances)
        mean[np.arange(len(port)), port] = np.inf
        for position, target in enumerate(np.argmin(mean, axis=1)):
            candidate = port.copy()
            candidate[position] = target
            yield _with_ports(partition, candidate, branch)


def _branch_moves(partition: Partition) -> Iterator[Partition]:
    """One port moved to another branch, or to one of its own."""
    for port, target in product(range(len(partition.branch)), range(partition.branch.max() + 2)):
        if partition.branch[port] != target < MAX_BRANCHES:
            candidate = partition.branch.copy()
            candidate[port] = target
            yield replace(partition, branch=_renumbered(candidate))


def _branch_candidates(partition: Partition, fewer: Sequence[Observation]) -> list[Partition]:
    """The partition with its ports anew on 2, 3, ... branches.

    Ports of one branch gain alike when ports of the branch are idle: by the same factor over what one
    branch for all would give them.
    """
    ports = len(partition.branch)
    single = _one_branch(partition.port, partition.weight)
    gains = []
    for observation in fewer:
        port = partition.port[observation.position]
        members = np.bincount(port, minlength=ports)
        if members.all():
            continue
        served = np.bincount(port, weights=observation.share, minlength=ports)
        expected = np.bincount(port, weights=single.predict(observation.position), minlength=ports)
        gain = np.full(ports, np.nan)
        gain[members > 0] = np.log(served[members > 0] / expected[members > 0])
        gains.append(gain)
    if not gains or ports < 2:
        return []
    labels = _clusterings(_distances(np.array(gains)), min(ports, MAX_BRANCHES))
    return [replace(partition, branch=branch) for branch in labels]


def _distances(rows: Floats) -> Floats:
    """Mean squared difference of each pair of columns over the rows that hold both, ``[columns, columns]``.

    Columns that no row holds together are as far apart as the furthest that one does.
    """
    present = np.isfinite(rows)
    filled = np.where(present, rows, 0.0)
    squares = (filled**2).T @ present
    both = present.T.astype(np.float64) @ present
    total = squares + squares.T - 2 * filled.T @ filled
    known = both > 0
    distances = np.where(known, total / np.maximum(both, 1), 0.0)
    distances = np.where(known, distances, distances.max())
    distances = np.maximum((distances + distances.T) / 2, 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _clusterings(distances: Floats, most: int) -> list[Ints]:
    """Labels for 2 to ``most`` clusters: average linkage, then each column to its nearest cluster."""
    if len(distances) < 2:
        return []
    tree = linkage(squareform(distances, checks=False), method="average")
    return [_settled(fcluster(tree, count, criterion="maxclust"), distances) for count in range(2, most + 1)]


def _settled(labels: NDArray[np.integer], distances: Floats) -> Ints:
    """Reassign columns to the cluster with the least mean distance until none moves."""
    current = _renumbered(labels)
    for _ in range(_SETTLE_PASSES):
        moved = _renumbered(np.argmin(_mean_distances(current, distances), axis=1))
        if np.array_equal(moved, current):
            break
        current = moved
    return current


def _mean_distances(labels: Ints, distances: Floats) -> Floats:
    """Mean distance of each column to the members of each cluster but itself, ``[columns, clusters]``.

    A column alone in its cluster is at distance 0 from it.
    """
    member = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
    others = member.sum(axis=0) - member
    mean: Floats = distances @ member / np.maximum(others, 1)
    return mean


def _renumbered(labels: NDArray[np.integer]) -> Ints:
    """The same labels as 0, 1, ... without gaps."""
    numbered: Ints = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return numbered


def _with_ports(partition: Partition, port: Ints, branch: Ints) -> Partition:
    """The partition with other ports; ``branch`` is by their labels, of which some may be unused."""
    used = np.unique(port)
    return Partition(_renumbered(port), _renumbered(branch[used]), partition.weight)


def _one_branch(port: NDArray[np.integer], weight: Floats) -> Partition:
    labels = _renumbered(port)
    return Partition(labels, np.zeros(labels.max() + 1, dtype=np.int64), weight)


def _bits(labels: Ints) -> float:
    """Entropy of the labels times their number, in nats."""
    fractions = np.bincount(labels) / len(labels)
    fractions = fractions[fractions > 0]
    return float(-len(labels) * np.sum(fractions * np.log(fractions)))
