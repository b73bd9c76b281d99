"""The owner's check of host memory: right data pass, every kind of wrong data is counted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from xstage_tune.cuda.pattern import PIECE_WORDS, burst_words, count_mismatches, nonce

RING_BYTES = 24 * 1024


def written(issued: list[int], burst_bytes: int, launch_nonce: int, first_slot: int = 0) -> NDArray[np.uint8]:
    """Host memory after a launch, built store by store as the producers make them."""
    slots = RING_BYTES // burst_bytes
    memory = np.full((len(issued), slots * burst_bytes), 0xA5, np.uint8)
    for producer, bursts in enumerate(issued):
        for burst in range(bursts):
            words = burst_words(launch_nonce, burst_bytes)
            words[::PIECE_WORDS] = burst
            begin = (burst + first_slot) % slots * burst_bytes
            memory[producer, begin : begin + burst_bytes] = words.view(np.uint8)
    return memory.reshape(-1)


def check(
    memory: NDArray[np.uint8], issued: list[int], burst_bytes: int, launch: int, first_slot: int = 0
) -> tuple[int, int]:
    slots = RING_BYTES // burst_bytes
    return count_mismatches(
        memory, slots, burst_bytes, np.array(issued, np.uint32), nonce(launch), first_slot
    )


@pytest.mark.parametrize("burst_bytes", [16, 1024, 4096, 5120, 8192, 24 * 1024])
@pytest.mark.parametrize("issued", [[0, 1, 2], [5, 6, 7], [40, 3, 100]])
def test_what_the_producers_store_passes(burst_bytes: int, issued: list[int]) -> None:
    slots = RING_BYTES // burst_bytes
    first_slot = slots * 2 // 3
    memory = written(issued, burst_bytes, nonce(3), first_slot)
    expected_bytes = sum(min(bursts, slots) for bursts in issued) * burst_bytes
    assert check(memory, issued, burst_bytes, 3, first_slot) == (expected_bytes, 0)


def test_bursts_in_other_slots_than_told_are_wrong() -> None:
    memory = written([3], 4096, nonce(0), first_slot=1)
    assert check(memory, [3], 4096, 0, first_slot=1)[1] == 0
    assert check(memory, [3], 4096, 0, first_slot=2)[1] > 4096


def test_memory_that_nothing_wrote_is_all_wrong() -> None:
    memory = np.full(3 * RING_BYTES, 0xA5, np.uint8)
    checked, wrong = check(memory, [1, 1, 1], 4096, 0)
    assert checked == wrong == 3 * 4096


def test_data_of_the_launch_before_are_wrong_but_for_equal_burst_numbers() -> None:
    memory = written([2], 4096, nonce(7))
    checked, wrong = check(memory, [2], 4096, 8)
    assert wrong == checked - 2 * 4


def test_a_lost_burst_of_the_last_lap_is_found() -> None:
    slots = RING_BYTES // 4096
    one_lap_short = written([2 * slots - 1], 4096, nonce(0))
    assert check(one_lap_short, [2 * slots], 4096, 0)[1] == 4


@pytest.mark.parametrize("byte", [0, 3, 4096, RING_BYTES - 1])
def test_one_flipped_bit_is_one_wrong_word(byte: int) -> None:
    memory = written([6, 6], 4096, nonce(1))
    memory[RING_BYTES + byte] ^= 0x10
    assert check(memory, [6, 6], 4096, 1)[1] == 4


def test_nonces_of_neighbouring_launches_share_no_word() -> None:
    words = [set(burst_words(nonce(launch), 8192).tolist()) for launch in range(64)]
    assert sum(len(one) for one in words) == len(set().union(*words)) == 64 * PIECE_WORDS
