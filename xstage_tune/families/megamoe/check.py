"""Whether what a MoE kernel stored is right: whose its rows are, and sampled ones in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.bf16 import Bits, Floats, from_bf16
from xstage_tune.families.megamoe.workload import MoeWorkload, Precision

Ints = NDArray[np.int64]

#: bf16 NaN, which no layer of finite inputs gives: what destinations hold before a launch.
POISON_BITS = 0x7FFF
#: Of the norms, against fp32 on the same operands. bf16: the rounding of activations and outputs is near
#: 3e-3. w8a8: that of activations to e4m3, of 3 bits, is near 3e-2.
TOLERANCE: dict[Precision, float] = {"bf16": 1e-2, "w8a8": 5e-2}
_SAMPLED_EXPERTS = 2
_SAMPLED_ROWS = 8


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """Whose tokens a rank's routed rows are, in the order of its experts.

    What a rank receives from this one lies together in its memory, in the order of *slots*; in a whole layer
    the rows of other ranks lie between.

    Args:
        rank: ``[rows]`` the source rank, 0 for this one.
        slot: ``[rows]`` the row's place at that rank.
    """

    rank: Ints
    slot: Ints

    def received(self, ranks: int) -> tuple[int, ...]:
        """Rows that each rank receives."""
        return tuple(np.bincount(self.rank, minlength=ranks).tolist())


def routed_rows(workload: MoeWorkload, rows: int, ranks: int, seed: int) -> RoutedRows:
    """Source ranks by the workload's remote fraction, evenly over every expert's rows; slots at random.

    Tokens of one expert come from all over a rank's batch, so neighbouring rows go to places far apart.

    Args:
        ranks: this one and those that it stores to.
    """
    fraction = workload.combine_remote_fraction if ranks > 1 else 0.0
    number = np.floor(np.arange(rows + 1) * fraction + 1e-9).astype(np.int64)
    remote = np.diff(number) > 0
    rank = np.where(remote, 1 + number[:-1] % max(1, ranks - 1), 0)
    slot = np.zeros(rows, np.int64)
    generator = np.random.default_rng(seed)
    for one in range(ranks):
        mine = np.flatnonzero(rank == one)
        slot[mine] = generator.permutation(mine.size)
    return RoutedRows(rank, slot)


def sampled_rows(tokens_per_expert: tuple[int, ...], seed: int) -> dict[int, Ints]:
    """Some rows of some experts: the first and last, and a few others; of those with most rows."""
    busiest = np.argsort(-np.asarray(tokens_per_expert), kind="stable")[:_SAMPLED_EXPERTS]
    generator = np.random.default_rng(seed)
    sampled = {}
    for expert in busiest.tolist():
        rows = tokens_per_expert[expert]
        if rows:
            drawn = generator.integers(rows, size=_SAMPLED_ROWS - 2)
            sampled[expert] = np.unique(np.concatenate(([0, rows - 1], drawn)))
    return sampled


@dataclass(frozen=True, slots=True)
class ExpertSample:
    """Some rows of one expert, with what they are made of; in fp32, scales applied.

    Args:
        rows: ``[n]`` numbers of the rows among all that are routed here.
        tokens: ``[n, hidden]``.
        weights1: ``[2, intermediate, hidden]``, gate then up.
        weights2: ``[hidden, intermediate]``.
    """

    expert: int
    rows: Ints
    tokens: Floats
    weights1: Floats
    weights2: Floats

    def reference(self) -> Floats:
        """The rows' outputs in fp32, ``[n, hidden]``."""
        gate, up = (self.tokens @ weights.T for weights in self.weights1)
        activations = gate / (1 + np.exp(-gate)) * up
        result: Floats = activations @ self.weights2.T
        return result


def complaint(
    received: tuple[Bits, ...],
    rows: RoutedRows,
    samples: Sequence[ExpertSample],
    trusted: tuple[Bits, ...] | None,
    precision: Precision,
) -> str:
    """What is wrong with what the ranks received; empty where nothing is.

    Every row has to be written, sampled ones right against fp32, and all of them those of a kernel that was
    found right, up to rounding.

    Args:
        received: of each rank ``[its rows, hidden]``, poisoned before the launch.
        trusted: the same of another kernel on the same inputs; None where there is none.
        precision: of the operands.
    """
    tolerance = TOLERANCE[precision]
    for rank, bits in enumerate(received):
        unwritten = np.flatnonzero((bits == POISON_BITS).any(axis=1))
        if unwritten.size:
            return f"{unwritten.size} rows of rank {rank} were not written, slot {unwritten[0]} the first"
    for sample in samples:
        error = sample_error(received, rows, sample)
        if not error <= tolerance:
            return f"relative error {error:.3g} against fp32 in rows of expert {sample.expert}"
    for rank, expected in enumerate(trusted or ()):
        differs = np.flatnonzero((received[rank] != expected).any(axis=1))
        for slot in differs.tolist():
            error = relative_error(received[rank][slot], from_bf16(expected[slot]))
            if not error <= tolerance:
                return f"slot {slot} of rank {rank} differs by {error:.3g} from another kernel's"
    return ""


def sample_error(received: tuple[Bits, ...], rows: RoutedRows, sample: ExpertSample) -> float:
    """Relative error of sampled rows against fp32."""
    seen = np.stack([received[rows.rank[row]][rows.slot[row]] for row in sample.rows])
    return relative_error(seen, sample.reference())


def relative_error(seen: Bits, expected: Floats) -> float:
    """Of the norms; NaN if ``seen`` has any."""
    return float(np.linalg.norm(from_bf16(seen) - expected) / np.linalg.norm(expected))
