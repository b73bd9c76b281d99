"""Whose rows a rank sends, and that an output which is wrong anywhere is found."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.base.bf16 import Bits, from_bf16, to_bf16
from xstage_tune.families.megamoe.check import (
    POISON_BITS,
    ExpertSample,
    RoutedRows,
    complaint,
    routed_rows,
    sampled_rows,
)
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import load_workload

ROWS, RANKS, HIDDEN, INTERMEDIATE = 40, 3, 16, 8


def layer(**keys: object) -> MoeWorkload:
    found = load_workload("megamoe/glm-5", [f"{key}={value}" for key, value in keys.items()])
    assert isinstance(found, MoeWorkload)
    return found


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.875, 1.0])
def test_the_remote_fraction_of_rows_leaves_evenly(fraction: float) -> None:
    rows = routed_rows(layer(remote_fraction=fraction), 800, 8, seed=1)
    remote = rows.rank > 0
    for first in range(0, 800, 100):
        assert remote[first : first + 100].sum() == pytest.approx(100 * fraction, abs=1)
    others = rows.received(8)[1:]
    assert max(others) - min(others) <= 1


def test_rows_of_a_rank_fill_its_slots_in_no_order() -> None:
    rows = routed_rows(layer(), 800, 8, seed=1)
    for rank, received in enumerate(rows.received(8)):
        slots = rows.slot[rows.rank == rank]
        assert sorted(slots.tolist()) == list(range(received))
        assert (np.diff(slots) != 1).any()


def test_one_rank_keeps_all_rows() -> None:
    rows = routed_rows(layer(), 10, 1, seed=0)
    assert rows.received(1) == (10,)


def test_sampled_rows_are_the_busiest_experts_first_and_last() -> None:
    sampled = sampled_rows((5, 0, 300, 1), seed=3)
    assert list(sampled) == [2, 0]
    for expert, rows in sampled.items():
        assert rows[0] == 0
        assert rows[-1] == (5, 0, 300, 1)[expert] - 1
    assert sampled_rows((0, 0), seed=3) == {}


class Layer:
    """A layer of one expert, and what its ranks have received when all is right."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)

        def normal(*size: int) -> Bits:
            return to_bf16(generator.standard_normal(size, np.float32))

        self.rows = RoutedRows(np.arange(ROWS) % RANKS, np.arange(ROWS) // RANKS)
        sample = ExpertSample(
            0,
            np.arange(ROWS),
            from_bf16(normal(ROWS, HIDDEN)),
            from_bf16(normal(2, INTERMEDIATE, HIDDEN)),
            from_bf16(normal(HIDDEN, INTERMEDIATE)),
        )
        self.samples = [sample]
        output = to_bf16(sample.reference())
        self.received = tuple(output[self.rows.rank == rank] for rank in range(RANKS))

    def complaint(self, trusted: tuple[Bits, ...] | None = None) -> str:
        return complaint(self.received, self.rows, self.samples, trusted, "bf16")


def test_a_right_output_is_not_complained_of() -> None:
    right = Layer()
    assert right.complaint() == ""
    assert right.complaint(tuple(bits.copy() for bits in right.received)) == ""


def test_a_row_that_nobody_wrote_is_named() -> None:
    wrong = Layer()
    wrong.received[1][4, 7] = POISON_BITS
    assert wrong.complaint() == "1 rows of rank 1 were not written, slot 4 the first"


def test_rows_that_changed_places_are_found() -> None:
    wrong = Layer()
    wrong.received[2][[0, 1]] = wrong.received[2][[1, 0]]
    assert "against fp32 in rows of expert 0" in wrong.complaint()


def test_a_row_of_no_sample_is_compared_with_the_trusted_kernels() -> None:
    wrong = Layer()
    trusted = tuple(bits.copy() for bits in wrong.received)
    wrong.samples = []
    wrong.received[0][3, 2] ^= 0x4000
    assert wrong.complaint() == ""
    assert wrong.complaint(trusted).startswith("slot 3 of rank 0 differs by")


def test_another_rounding_of_the_trusted_kernel_passes() -> None:
    right = Layer()
    trusted = tuple(bits ^ 1 for bits in right.received)
    assert right.complaint(trusted) == ""
