"""The owner's check of what a skeleton left: right data pass, every kind of wrong data is counted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulation_kernels.cases import attention_skeleton, moe_skeleton
from tests.emulation_kernels.test_plan import TARGET
from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.extents import EXTENT, count_extent_mismatches
from xstage_tune.cuda.pattern import PIECE_WORDS, nonce
from xstage_tune.cuda.skeletons_extents import local_extents, remote_extents, tile_rings
from xstage_tune.cuda.skeletons_plan import plan_launch

NONCE = nonce(4)


def extents(*rows: tuple[int, int, int, int]) -> NDArray[np.void]:
    """From (offset, bytes, phase, tile)."""
    return np.array([(*row, 0) for row in rows], EXTENT)


def stored(table: NDArray[np.void], nbytes: int) -> NDArray[np.uint8]:
    """Memory with the extents written word by word."""
    memory = np.full(nbytes // 4, 0xDEADBEEF, np.uint32)
    for extent in table:
        for word in range(int(extent["bytes"]) // 4):
            in_piece = (int(extent["phase"]) // 4 + word) % PIECE_WORDS
            value = int(extent["tile"]) if in_piece == 0 else NONCE + in_piece
            memory[int(extent["offset"]) // 4 + word] = value
    return memory.view(np.uint8)


TABLE = extents((0, 8192, 0, 7), (8192, 4112, 0, 9), (16384, 6000, 8192 - 4000, 7), (24576, 16, 0, 1))


def test_what_was_to_be_stored_passes() -> None:
    assert count_extent_mismatches(stored(TABLE, 32768), TABLE, NONCE) == (8192 + 4112 + 6000 + 16, 0)


@pytest.mark.parametrize("byte", [0, 4096, 8188, 8192 + 4096, 16384, 16384 + 5999, 24576])
def test_one_wrong_byte_anywhere_is_one_wrong_word(byte: int) -> None:
    memory = stored(TABLE, 32768)
    memory[byte] ^= 1
    assert count_extent_mismatches(memory, TABLE, NONCE)[1] == 4


def test_bytes_outside_of_the_extents_do_not_matter() -> None:
    memory = stored(TABLE, 32768)
    memory[30000] ^= 1
    assert count_extent_mismatches(memory, TABLE, NONCE)[1] == 0


def test_another_launch_or_another_tile_is_found() -> None:
    memory = stored(TABLE, 32768)
    assert count_extent_mismatches(memory, TABLE, nonce(5))[1] > 18_000
    other = TABLE.copy()
    other["tile"] += 1
    # One word for each piece that begins in an extent.
    assert count_extent_mismatches(memory, other, NONCE)[1] == 4 * (2 + 2 + 1 + 1)


def test_no_extents_are_no_bytes() -> None:
    assert count_extent_mismatches(np.zeros(16, np.uint8), extents(), NONCE) == (0, 0)


def test_a_ring_keeps_the_last_lap() -> None:
    plan = plan_launch(attention_skeleton(tiles=7, sms=2), TARGET)
    rings = tile_rings(2 * 3 * 4096, lanes=2, slot_bytes=4096, launch=1)
    left = remote_extents(plan, rings)
    assert sorted(left["tile"].tolist()) == [4, 4, 5, 5, 6, 6]
    slot = {int(e["tile"]): int(e["offset"]) // 4096 for e in left if e["offset"] < 3 * 4096}
    assert slot == {tile: (tile + rings.first_slot) % 3 for tile in (4, 5, 6)}


def test_local_bytes_lie_behind_the_remote_ones_of_their_tile() -> None:
    plan = plan_launch(moe_skeleton(), TARGET)
    rings = tile_rings(1 << 20, plan.lanes, 8192, launch=0)
    remote, local = remote_extents(plan, rings), local_extents(plan, rings)
    assert set(remote["phase"].tolist()) == {0}
    assert (
        int(remote["bytes"].sum() + local["bytes"].sum()) == plan.remote_bytes.sum() + plan.local_bytes.sum()
    )
    assert np.isin(local["phase"], np.unique(plan.remote_bytes)).all()


def test_a_destination_too_small_for_a_tile_a_lane_is_refused() -> None:
    with pytest.raises(UsageError, match="132 tiles of 32768 bytes do not fit"):
        tile_rings(1 << 20, lanes=132, slot_bytes=32768, launch=0)
