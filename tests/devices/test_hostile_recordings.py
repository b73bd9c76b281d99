"""Recordings damaged or made to do harm: one error that names the file, and no room made for claims."""

from __future__ import annotations

import io
import json
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulation.test_recording import ORDER, RUNS, recorded
from xstage_tune.base.errors import UsageError
from xstage_tune.launches.recording import MEMBER
from xstage_tune.launches.replay import ReplayedDevice

TOTALS = "00000.totals"
Edit = Callable[[dict[str, bytes]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The members of a recording."""
    file = tmp_path_factory.mktemp("whole") / "run.xsemu"
    with recorded(file) as writer:
        for run in RUNS:
            writer.keep(run)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@contextmanager
def refused(most_bytes: float = 32e6) -> Iterator[list[str]]:
    """A block that is refused, and takes little memory for it; gives the message."""
    message: list[str] = []
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="cannot be replayed: ") as caught:
            yield message
        message.append(caught.value.message)
        assert "\n" not in caught.value.message
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()


def replay(file: Path) -> None:
    device = ReplayedDevice(file, "emulate")
    try:
        list(device.run(ORDER))
    finally:
        device.close()


def edited(whole: dict[str, bytes], file: Path, edit: Edit) -> Path:
    members = dict(whole)
    edit(members)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file


def manifest(change: Callable[[dict[str, Any]], object]) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        keys = json.loads(members[MEMBER])
        change(keys)
        members[MEMBER] = json.dumps(keys).encode()

    return edit


def member(name: str, data: bytes) -> Edit:
    return lambda members: members.update({name: data})


def array(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


def head_of_array(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, totals=np.zeros(3))
    return buffer.getvalue()


def chunk(tag: bytes, heads: list[tuple[int, int, int]]) -> bytes:
    body = b"".join(struct.pack("<IqB", *head) for head in heads) + zlib.compress(b"", wbits=-15)
    return tag + struct.pack("<I", zlib.crc32(body)) + body


def tables_of(spans: bytes) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        members["tables"] = spans
        members["tables.index"] = np.array([0, len(spans), 0], "<u4").tobytes()

    return edit


SMS = ORDER[0].streams.sms
CLAIM = 2**32 - 1
FEW_SMS = 3


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (member(TOTALS, npz()), "totals of launch 0: "),
        (member(TOTALS, head_of_array("{'descr': '<f8', 'shape': ('")), "totals of launch 0: "),
        (member(TOTALS, head_of_array("{(")), "totals of launch 0: "),
        (
            member(TOTALS, head_of_array("{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 42,)}")),
            "totals of launch 0",
        ),
        (
            member(TOTALS, head_of_array(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({CLAIM},)}}")),
            "totals of launch 0",
        ),
        (member(TOTALS, b""), "totals of launch 0: "),
        (lambda members: members.update({TOTALS: few_totals(members, 0)}), "have shape (0,), not (132,)"),
        (lambda members: members.update({TOTALS: few_totals(members, 3)}), "have shape (3,), not (132,)"),
        (lambda members: members.pop(TOTALS), TOTALS),
        (member(TOTALS, bytes(40_000_000)), "it claims 40,000,000 bytes"),
        (member("tables.index", bytes(40_000_000)), "tables.index: it claims 40,000,000 bytes"),
        (tables_of(chunk(b"XSS1", [(CLAIM, 0, 0)] * 9)), "launch 0: damaged 'XSS1' chunk"),
        (
            tables_of(chunk(b"XSS1", [(n, 0, 0) for n in (*(CLAIM - 1, CLAIM) * 2, CLAIM, *[1] * 4)])),
            "launch 0: damaged 'XSS1' chunk",
        ),
        (tables_of(chunk(b"XSS1", [(1, 0, 3)] * 9)), "launch 0: damaged 'XSS1' chunk"),
        (
            tables_of(chunk(b"XSS1", [(n, 5, 0) for n in (1, 2, 1, 2, 2, 1, 1, 1, 1)])),
            "launch 0: damaged chunk: its runs do not have 2 spans",
        ),
        (member(MEMBER, b"[" * 10_000_000), "nested too deeply"),
        (member(MEMBER, b'{"launches":[' + b"{}," * 500_000 + b"{}]}"), "1,000,004 values"),
        (member(MEMBER, b'{"launches":[' + b"1," * 500_000 + b"1]}"), "recording.json: version"),
        (member(MEMBER, bytes(40_000_000)), "recording.json: it claims 40,000,000 bytes"),
        (member(MEMBER, b'{"version": "\xff"}'), "recording.json: "),
        (member(MEMBER, b"[]"), "recording.json: "),
        (manifest(lambda keys: keys["device"].update(sm_count=0)), "recording.json: device.sm_count: "),
        (manifest(lambda keys: keys["device"].update(sm_count=FEW_SMS)), "132 SMs of 3"),
        (
            manifest(lambda keys: keys["device"].update(link={str(n): [] for n in range(99_999)})),
            "too many values",
        ),
        (manifest(lambda keys: keys["launches"][0].update(kept_fraction=2.0)), "launches.0.kept_fraction: "),
        (manifest(lambda keys: keys.update(launches={})), "launches: should be a list"),
    ],
)  # fmt: skip
def test_members_that_cannot_be_are_refused_before_they_are_read(
    whole: dict[str, bytes], tmp_path: Path, edit: Edit, reason: str
) -> None:
    file = edited(whole, tmp_path / "edited.xsemu", edit)
    with refused() as message:
        replay(file)
    assert str(file) in message[0]
    assert reason in message[0]


def few_totals(members: dict[str, bytes], rows: int) -> bytes:
    return array(np.load(io.BytesIO(members[TOTALS]))[:rows])


def test_a_manifest_of_many_wrong_launches_is_refused_at_the_first(
    whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Of 1.7 MB, which took 3 GB."""
    file = edited(whole, tmp_path / "many.xsemu", manifest(lambda keys: keys.update(launches=[{}] * 400_000)))
    with refused(300e6) as message:
        replay(file)
    assert "launches.0.kind: " in message[0]


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [(8, 1, "encrypted"), (10, 99, "method 99"), (24, 2**31, "it claims 2,147,483,648 bytes")],
    ids=["encrypted", "unknown method", "size"],
)
def test_headers_of_members_that_nothing_writes(
    whole: dict[str, bytes], tmp_path: Path, place: int, value: int, reason: str
) -> None:
    """In the directory, ``place`` bytes into the entry of the manifest, which is the last."""
    file = edited(whole, tmp_path / "edited.xsemu", lambda _: None)
    data = bytearray(file.read_bytes())
    begin = data.rindex(b"PK\x01\x02")
    form = "<I" if place == 24 else "<H"
    struct.pack_into(form, data, begin + place, value)
    file.write_bytes(data)
    with refused() as message:
        replay(file)
    assert reason in message[0]


def test_a_directory_of_millions_of_members_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "many.xsemu"
    directory = (b"PK\x01\x02" + bytes(42)) * 200_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(directory), 0, 0)
    file.write_bytes(directory + end)
    with refused() as message:
        replay(file)
    assert "it is truncated or no recording (it claims 9,200,000 bytes" in message[0]


@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, what: str) -> None:
    file = tmp_path / "run.xsemu"
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"cannot read recording .*run\.xsemu: it is a "):
        replay(file)


def test_any_one_byte_may_be_wrong(whole: dict[str, bytes], tmp_path: Path) -> None:
    """The launches come back as they were, or the recording is refused."""
    file = edited(whole, tmp_path / "edited.xsemu", lambda _: None)
    data = file.read_bytes()
    rng = np.random.default_rng(0)
    ends = len(data) - rng.integers(1, 600, 150)  # the directory, where a wrong byte is not in a checksum
    for place in (*ends, *rng.integers(0, len(data), 50)):
        wrong = bytearray(data)
        wrong[place] ^= int(rng.integers(1, 256))
        file.write_bytes(wrong)
        with suppress(UsageError), closing(ReplayedDevice(file, "emulate")) as device:
            replayed = list(device.run(ORDER))
            assert [run.figures for run in replayed] == [run.figures for run in RUNS]
