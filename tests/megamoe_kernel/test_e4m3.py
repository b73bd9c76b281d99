"""e4m3 bytes as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.base.e4m3 import LARGEST, from_e4m3


@pytest.mark.parametrize(
    ("byte", "number"),
    [
        (0x00, 0.0), (0x01, 2.0**-9), (0x07, 7 * 2.0**-9), (0x08, 2.0**-6), (0x38, 1.0), (0x3C, 1.5),
        (0xB8, -1.0), (0x7E, LARGEST), (0xFE, -LARGEST),
    ],
)  # fmt: skip
def test_a_byte_is_its_number(byte: int, number: float) -> None:
    assert from_e4m3(np.array([byte], np.uint8)).tolist() == [number]


def test_only_all_ones_are_no_number() -> None:
    values = from_e4m3(np.arange(256, dtype=np.uint8))
    assert np.flatnonzero(np.isnan(values)).tolist() == [0x7F, 0xFF]


def test_numbers_grow_with_their_bytes_and_have_their_negatives() -> None:
    values = from_e4m3(np.arange(256, dtype=np.uint8))
    assert (np.diff(values[:0x7F]) > 0).all()
    np.testing.assert_array_equal(values[0x80:0xFF], -values[:0x7F])
