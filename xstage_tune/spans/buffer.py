"""The buffer that ``kernels/include/xstage/span.cuh`` fills, and the file that it is saved to.

The file is the buffer as it is, and behind it UTF-8 JSON: ``names`` of spans by number, ``roles`` of a CTA's
lanes, ``kernel``. All of it may be left out: a buffer that a C++ program wrote is such a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import whole_file
from xstage_tune.base.parsing import parse_json
from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanTable, untagged_spans
from xstage_tune.base.text import printable

#: First in the buffer.
HEAD_DTYPE = np.dtype([("magic", "<u8"), ("lanes", "<u4"), ("capacity", "<u4")])
MAGIC = b"XSSPANS1"
#: A record's name has 8 bits, a span's lane 16.
MOST_NAMES, MOST_LANES = 1 << 8, 1 << 16
#: Of one timeline. More than the shared memory of any GPU stages.
MOST_SPANS = 3_200_000
#: Characters of a name; symbols of templates have thousands.
MOST_NAME = 200
_LONGEST_NS = float(1 << 53)  # 104 days, to which a double tells ns apart


def header_dir() -> Path:
    """The folder to include ``<xstage/span.cuh>`` from."""
    return data_dir("kernels") / "include"


def buffer_bytes(lanes: int, capacity: int) -> int:
    """Size of the buffer of ``lanes`` lanes with room for ``capacity`` spans each."""
    return HEAD_DTYPE.itemsize + lanes * (LANE_DTYPE.itemsize + capacity * RECORD_DTYPE.itemsize)


def new_buffer(lanes: int, capacity: int) -> NDArray[np.uint8]:
    """A buffer to copy to the GPU, ``[bytes]``: all 0 behind its head, which a lane that closes writes too.

    Args:
        lanes: CTAs times their roles.
        capacity: spans that a lane keeps; what comes later is counted.

    Raises:
        UsageError: there are more lanes or spans than can be read.
    """
    if not (1 <= lanes <= MOST_LANES and capacity >= 1 and lanes * capacity <= MOST_SPANS):
        raise UsageError(
            f"a buffer of {lanes:,} lanes with {capacity:,} spans each",
            f"1 to {MOST_LANES:,} lanes, 1 to {MOST_SPANS:,} spans in all",
        )
    buffer = np.zeros(buffer_bytes(lanes, capacity), np.uint8)
    buffer[: HEAD_DTYPE.itemsize].view(HEAD_DTYPE)[0] = (int.from_bytes(MAGIC, "little"), lanes, capacity)
    return buffer


def read_buffer(buffer: Any) -> SpanTable:
    """The spans in a buffer, whose ``kind`` is the number of their name, ordered by lane, then by begin.

    Args:
        buffer: bytes, an array, a tensor on any device, or the path of a file of one (``.npy``, or as it is).

    Raises:
        UsageError: it is no such buffer, no lane was closed, or what is in it cannot be.
    """
    return decode_buffer(_bytes_of(buffer), "buffer")[0]


def save_buffer(
    buffer: Any,
    file: str | Path,
    names: Mapping[int, str],
    *,
    roles: Sequence[str] = (),
    kernel: str = "",
    force: bool = False,
) -> None:
    """Save a buffer as a file that ``xstage-tune import`` takes.

    Args:
        buffer: as of :func:`read_buffer`.
        names: of the spans, by the number that the kernel gave to ``end``.
        roles: of the lanes of a CTA, in order; by default it has one lane.
        kernel: its name.
        force: replace a file.

    Raises:
        UsageError: as :func:`read_buffer`, or the file cannot be written.
    """
    data = _bytes_of(buffer)
    _, size = decode_buffer(data, "buffer")
    about = {"names": {str(number): name for number, name in names.items()}, "roles": roles, "kernel": kernel}
    with whole_file(Path(file), force=force) as opened:
        opened.write(data[:size])
        opened.write(json.dumps(about, ensure_ascii=False).encode(errors="replace"))


def decode_buffer(data: bytes, origin: str) -> tuple[SpanTable, int]:
    """The spans of a buffer, and how many bytes it has: more may follow.

    Args:
        origin: what it is, as errors name it.

    Raises:
        UsageError: as :func:`read_buffer`.
    """
    if len(data) < HEAD_DTYPE.itemsize or not data.startswith(MAGIC):
        hint = "did the kernel run, and call close() of each lane?"
        raise UsageError(f"{origin}: no lane of xstage/span.cuh was closed in it", hint)
    _, lanes, capacity = np.frombuffer(data, HEAD_DTYPE, 1)[0].tolist()
    size = buffer_bytes(lanes, capacity)
    if lanes > MOST_LANES or size > len(data):
        raise UsageError(
            f"{origin}: {len(data):,} bytes, where {lanes:,} lanes of {capacity:,} spans take {size:,}",
            "give all of the buffer",
        )
    rows = np.frombuffer(data, LANE_DTYPE, lanes, HEAD_DTYPE.itemsize).copy()
    records = np.frombuffer(data, RECORD_DTYPE, lanes * capacity, HEAD_DTYPE.itemsize + rows.nbytes)
    _require_possible(rows, capacity, origin)
    never_open = rows["timer_begin_ns"] == 0
    if never_open.all():
        raise UsageError(f"{origin}: none of its {lanes:,} lanes was closed", "call close() of each lane")
    rows["timer_begin_ns"][never_open] = rows["timer_begin_ns"][~never_open].min()
    rows["timer_end_ns"][never_open] = rows["timer_begin_ns"][never_open]
    table, tags = untagged_spans(records.reshape(lanes, capacity), rows)
    spans = table.spans
    spans["kind"] = tags >> 24
    order = np.lexsort((-spans["duration_ticks"].astype(np.int64), spans["begin_ticks"], spans["lane"]))
    return SpanTable(spans[order], rows), size


def read_about(data: bytes, origin: str) -> tuple[dict[int, str], tuple[str, ...], str]:
    """Names, roles and kernel of what follows a buffer in its file.

    Raises:
        UsageError: it is not what :func:`save_buffer` writes.
    """
    if not data.strip(b"\0"):
        return {}, (), ""
    try:
        about = parse_json(data.decode())
        names = {int(number): _name(name) for number, name in about.get("names", {}).items()}
        if names and not 0 <= min(names) <= max(names) < MOST_NAMES:
            raise ValueError(f"names are numbered 0 to {MOST_NAMES - 1}")
        return names, tuple(_name(role) for role in about.get("roles", [])), _name(about.get("kernel", ""))
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"{origin}: what follows its spans tells no names: {error}") from None


def short_name(text: str) -> str:
    """A name as it is kept: it prints, and is not endless."""
    return printable(text if len(text) <= MOST_NAME else f"{text[: MOST_NAME - 3]}...")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:MOST_NAME]!r} is no text")
    return short_name(value)


def _require_possible(rows: NDArray[np.void], capacity: int, origin: str) -> None:
    """Refuse rows that no lane wrote."""
    recorded, begin, end = rows["recorded"], rows["timer_begin_ns"], rows["timer_end_ns"]
    opened = begin > 0
    possible = (recorded <= capacity) & (end >= begin) & (rows["tick_end"] >= rows["tick_begin"])
    possible &= opened | (recorded == 0)
    possible &= (recorded == 0) | (rows["tick_end"] > rows["tick_begin"])
    if not possible.all():
        raise UsageError(
            f"{origin}: damaged: lane {int(np.argmin(possible))} has clocks or counts that cannot be"
        )
    if opened.any() and float(end[opened].max()) - float(begin[opened].min()) > _LONGEST_NS:
        raise UsageError(f"{origin}: damaged: its lanes are more than 104 days apart")
    if int(recorded.astype(np.int64).sum()) > MOST_SPANS:
        raise UsageError(f"{origin}: more than {MOST_SPANS:,} spans", "record fewer tiles")


def _bytes_of(buffer: Any) -> bytes:
    if isinstance(buffer, str | Path):
        path = Path(buffer)
        try:
            return np.load(path, allow_pickle=False).tobytes() if path.suffix == ".npy" else path.read_bytes()
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {error}") from None
    if isinstance(buffer, bytes | bytearray | memoryview):
        return bytes(buffer)
    if hasattr(buffer, "detach"):  # a tensor, of a package that need not be here
        buffer = buffer.detach().cpu().contiguous().numpy()
    return np.ascontiguousarray(buffer).tobytes()
