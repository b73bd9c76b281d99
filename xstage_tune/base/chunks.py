"""Span chunks: the arrays of one launch as compact, checksummed bytes, exactly reversible.

A chunk holds a table column by column. Each column is reduced to what varies: its minimum is
taken off, the rest is cut to the narrowest of 0, 1, 2, 4 or 8 bytes, and the bytes are regrouped
by significance, so that the noisy low bytes and the nearly constant high bytes are each
compressed among their own kind. Deflate runs in its run-length mode (``Z_RLE``): matching strings
in timing noise only costs time, and on jittered periods came out both larger and slower.

Layout, little-endian: 4-byte tag (table and version), CRC-32 of all that follows, then per column
its rows (u4), minimum (i8) and width (u1), then the deflated columns.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import StoreError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE

#: Names of the two encodings, kept beside a chunk so that a later version can tell them apart.
SPAN_CODEC = "spans-1"
LANE_CODEC = "lanes-1"

_SPAN_TAG = b"XSS1"
_LANE_TAG = b"XSL1"
_PREFIX = struct.Struct("<4sI")  # tag, CRC-32 of the rest
_COLUMN = struct.Struct("<IqB")  # rows, minimum, bytes a row
_SPAN_COLUMNS = 9
_LANE_COLUMNS = 9
_WIDTHS = (1, 2, 4, 8)
_MOST_ROWS = np.iinfo(np.uint32).max
_MOST_LANES = 1 << 16  # a span names its lane in 16 bits

Column = NDArray[np.uint64]


class ChunkError(StoreError):
    """The bytes are not a chunk of this kind and version, or are damaged."""


def encode_spans(spans: NDArray[np.void]) -> bytes:
    """Pack ``[n]`` of ``SPAN_DTYPE``; smallest when ordered by lane, then by begin.

    A *run* is a maximal stretch of spans on one lane. Inside a run a begin is stored as the time
    since the end of the span before it: that is the producer's spin, which barely varies.

    Raises:
        ValueError: ``spans`` has another dtype or shape.
    """
    _require_dtype(spans, SPAN_DTYPE)
    begin, duration, index = (_column(spans[name]) for name in ("begin_ticks", "duration_ticks", "index"))
    first = _run_starts(spans["lane"])
    follows = _follower_mask(len(spans), first)[1:]
    gap = (begin[1:] - begin[:-1] - duration[:-1])[follows]
    step = (index[1:] - index[:-1])[follows]
    run_length = np.diff(np.append(first, len(spans))).astype(np.uint64)
    columns = [
        *(gap, duration, step, _column(spans["kind"]), _column(spans["role"])),
        *(_column(spans["lane"][first]), run_length, begin[first], index[first]),
    ]
    return _pack(_SPAN_TAG, columns)


def decode_spans(blob: bytes, most_rows: int = _MOST_ROWS) -> NDArray[np.void]:
    """Unpack :func:`encode_spans`: ``[n]`` of ``SPAN_DTYPE``.

    Args:
        most_rows: that there can be: equal rows take no bytes, so the length of ``blob`` bounds them not.

    Raises:
        ChunkError: the bytes are damaged, of another kind, or claim more rows.
    """

    def whole(rows: Sequence[int]) -> bool:
        n, runs = rows[1], rows[5]
        return n <= most_rows and rows == [n - runs, n, n - runs, n, n, runs, runs, runs, runs]

    columns = _unpack(blob, _SPAN_TAG, _SPAN_COLUMNS, whole)
    gap, duration, step, kind, role, lane, run_length, first_begin, first_index = columns
    n = len(duration)
    if not ((run_length >= 1) & (run_length <= n)).all() or int(run_length.sum()) != n:
        raise ChunkError(f"damaged chunk: its runs do not have {n} spans")
    runs = run_length.astype(np.int64)
    first = np.cumsum(runs) - runs
    follows = _follower_mask(len(duration), first)
    since_previous = np.zeros(len(duration), np.uint64)
    since_previous[follows] = gap + duration[:-1][follows[1:]]
    steps = np.zeros(len(duration), np.uint64)
    steps[follows] = step
    spans = np.empty(len(duration), SPAN_DTYPE)
    spans["begin_ticks"] = _sum_within_runs(since_previous, first, runs, first_begin)
    spans["duration_ticks"] = duration
    spans["index"] = _sum_within_runs(steps, first, runs, first_index)
    spans["lane"] = np.repeat(lane, runs)
    spans["kind"] = kind
    spans["role"] = role
    return spans


def encode_lanes(lanes: NDArray[np.void]) -> bytes:
    """Pack ``[lanes]`` of ``LANE_DTYPE``.

    Raises:
        ValueError: ``lanes`` has another dtype or shape.
    """
    _require_dtype(lanes, LANE_DTYPE)
    timer_begin, tick_begin = _column(lanes["timer_begin_ns"]), _column(lanes["tick_begin"])
    columns = [
        *(timer_begin, lanes["timer_end_ns"] - timer_begin, tick_begin, lanes["tick_end"] - tick_begin),
        *(_column(lanes[name]) for name in ("recorded", "dropped", "issued", "sm_id")),
        lanes["lane"] - np.arange(len(lanes), dtype=np.uint64),
    ]
    return _pack(_LANE_TAG, columns)


def decode_lanes(blob: bytes) -> NDArray[np.void]:
    """Unpack :func:`encode_lanes`: ``[lanes]`` of ``LANE_DTYPE``.

    Raises:
        ChunkError: the bytes are damaged, of another kind, or claim more lanes than can be told apart.
    """

    def whole(rows: Sequence[int]) -> bool:
        return rows[0] <= _MOST_LANES and rows.count(rows[0]) == len(rows)

    columns = _unpack(blob, _LANE_TAG, _LANE_COLUMNS, whole)
    timer_begin, timer_length, tick_begin, tick_length, recorded, dropped, issued, sm_id, lane = columns
    lanes = np.empty(len(timer_begin), LANE_DTYPE)
    lanes["timer_begin_ns"], lanes["timer_end_ns"] = timer_begin, timer_begin + timer_length
    lanes["tick_begin"], lanes["tick_end"] = tick_begin, tick_begin + tick_length
    lanes["recorded"], lanes["dropped"], lanes["issued"] = recorded, dropped, issued
    lanes["sm_id"] = sm_id
    lanes["lane"] = lane + np.arange(len(lanes), dtype=np.uint64)
    return lanes


def _run_starts(lane: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Index of the first span of every run."""
    if not len(lane):
        return np.empty(0, np.int64)
    return np.concatenate(([0], np.flatnonzero(lane[1:] != lane[:-1]) + 1))


def _follower_mask(length: int, first: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for every span that has a predecessor in its run."""
    follows = np.ones(length, np.bool_)
    follows[first] = False
    return follows


def _sum_within_runs(
    steps: Column, first: NDArray[np.int64], runs: NDArray[np.int64], start: Column
) -> Column:
    """Running sum (modulo 2**64) of ``steps`` that restarts from ``start`` at each run."""
    total = np.cumsum(steps)
    restarted: Column = total + np.repeat(start - total[first], runs)
    return restarted


def _require_dtype(table: NDArray[np.void], dtype: np.dtype[np.void]) -> None:
    if table.dtype != dtype or table.ndim != 1:
        raise ValueError(f"expected a one-dimensional array of {dtype}, got {table.ndim}-d {table.dtype}")


def _column(values: NDArray[np.unsignedinteger]) -> Column:
    return values.astype(np.uint64)


def _pack(tag: bytes, columns: Sequence[Column]) -> bytes:
    heads, planes = [], []
    for column in columns:
        minimum, width, plane = _narrow(column)
        heads.append(_COLUMN.pack(len(column), minimum, width))
        planes.append(plane)
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    body = b"".join((*heads, deflate.compress(b"".join(planes)), deflate.flush()))
    return _PREFIX.pack(tag, zlib.crc32(body)) + body


def _narrow(column: Column) -> tuple[int, int, bytes]:
    """Minimum, bytes a row, and the rows above the minimum grouped by byte significance.

    Values count as signed, so that a difference just below zero stays narrow; all arithmetic
    is modulo 2**64, which loses nothing.
    """
    if not len(column):
        return 0, 0, b""
    minimum = column.view(np.int64).min()
    above = column - minimum.astype(np.uint64)
    largest = int(above.max())
    if largest == 0:
        return int(minimum), 0, b""
    width = next(width for width in _WIDTHS if largest < 1 << (8 * width))
    octets = above.astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    return int(minimum), width, octets.T.tobytes()


def _unpack(blob: bytes, tag: bytes, count: int, whole: Callable[[Sequence[int]], bool]) -> list[Column]:
    """The columns, if their rows go together; nothing of their size is made before that is known."""
    heads_end = _PREFIX.size + count * _COLUMN.size
    if len(blob) < heads_end or blob[: len(tag)] != tag:
        raise ChunkError(f"not a '{tag.decode()}' chunk ({len(blob)} bytes starting {blob[:4]!r})")
    _, checksum = _PREFIX.unpack_from(blob)
    if zlib.crc32(memoryview(blob)[_PREFIX.size :]) != checksum:
        raise ChunkError(f"damaged '{tag.decode()}' chunk: checksum mismatch over {len(blob)} bytes")
    heads = list(_COLUMN.iter_unpack(blob[_PREFIX.size : heads_end]))
    if not whole([rows for rows, _, _ in heads]) or any(width not in (0, *_WIDTHS) for *_, width in heads):
        told = ", ".join(f"{rows}x{width}" for rows, _, width in heads)
        raise ChunkError(f"damaged '{tag.decode()}' chunk: no table has columns of {told} bytes")
    planes = _inflate(blob[heads_end:], sum(rows * width for rows, _, width in heads))
    columns, offset = [], 0
    for rows, minimum, width in heads:
        columns.append(_widen(planes[offset : offset + rows * width], rows, minimum, width))
        offset += rows * width
    return columns


def _inflate(body: bytes, size: int) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        planes = inflate.decompress(body, size + 1)
    except zlib.error as error:
        raise ChunkError(f"damaged chunk: {error}") from error
    if len(planes) != size or not inflate.eof:
        raise ChunkError(f"damaged chunk: {len(planes)} of {size} bytes of columns")
    return planes


def _widen(plane: bytes, rows: int, minimum: int, width: int) -> Column:
    above = np.zeros(rows, np.uint64)
    if width:
        octets = np.frombuffer(plane, np.uint8).reshape(width, rows)
        above = np.ascontiguousarray(octets.T).view(f"<u{width}").ravel().astype(np.uint64)
    column: Column = above + np.array(minimum, np.int64).astype(np.uint64)
    return column
