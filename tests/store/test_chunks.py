from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from tests.store.bursts import make_burst
from xstage_tune.base.chunks import ChunkError, decode_lanes, decode_spans, encode_lanes, encode_spans
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE

SPANS = npst.arrays(SPAN_DTYPE, st.integers(0, 40))
LANES = npst.arrays(LANE_DTYPE, st.integers(0, 40))
BOUNDED = settings(max_examples=80, deadline=None)


def extremes(dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Rows that jump between zero and the largest value of every field."""
    table = np.zeros(4, dtype)
    for name in dtype.names or ():
        table[name][1::2] = np.iinfo(dtype[name]).max
    return table


@BOUNDED
@given(SPANS)
def test_any_spans_come_back_byte_for_byte(spans: NDArray[np.void]) -> None:
    assert decode_spans(encode_spans(spans)).tobytes() == spans.tobytes()


@BOUNDED
@given(LANES)
def test_any_lanes_come_back_byte_for_byte(lanes: NDArray[np.void]) -> None:
    assert decode_lanes(encode_lanes(lanes)).tobytes() == lanes.tobytes()


def test_the_extremes_of_every_field_come_back() -> None:
    assert decode_spans(encode_spans(extremes(SPAN_DTYPE))).tobytes() == extremes(SPAN_DTYPE).tobytes()
    assert decode_lanes(encode_lanes(extremes(LANE_DTYPE))).tobytes() == extremes(LANE_DTYPE).tobytes()


def test_a_strided_view_is_packed_as_its_copy() -> None:
    spans = make_burst().table.spans[::3]
    assert encode_spans(spans) == encode_spans(spans.copy())


def test_periodic_spans_take_less_than_four_bytes_each() -> None:
    # 16 bits of duration and a constant gap leave no more to store than the duration itself.
    spans = make_burst(lanes=132, bursts=250).table.spans
    assert len(encode_spans(spans)) < 4 * len(spans)


@BOUNDED
@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    blob = bytearray(encode_spans(make_burst().table.spans))
    position = data.draw(st.integers(0, len(blob) - 1))
    blob[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ChunkError):
        decode_spans(bytes(blob))


@BOUNDED
@given(st.data())
def test_a_cut_or_lengthened_chunk_is_noticed(data: st.DataObject) -> None:
    blob = encode_lanes(make_burst().table.lanes)
    kept = data.draw(st.integers(0, len(blob) - 1))
    for damaged in (blob[:kept], blob + b"\0"):
        with pytest.raises(ChunkError):
            decode_lanes(damaged)


def test_a_chunk_of_the_other_kind_is_refused() -> None:
    table = make_burst().table
    with pytest.raises(ChunkError, match="XSS1"):
        decode_spans(encode_lanes(table.lanes))


def test_an_array_of_another_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="one-dimensional"):
        encode_spans(make_burst().table.lanes)
