"""The disk cache of compiled kernels: what hits, what misses, and what faults do to it."""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from xstage_tune.cuda import cache
from xstage_tune.cuda.cache import cache_folder, cached_kernel
from xstage_tune.cuda.compiler import CompiledKernel

SOURCE = (
    '#include "value.cuh"\nextern "C" __global__ void fill(float* to) { to[threadIdx.x] = VALUE + KNOB; }\n'
)

#: One of several processes that compile the same kernel: prints the hash of the bytes it got.
COMPETITOR = """
import hashlib, sys
from pathlib import Path
from xstage_tune.cuda.cache import cached_kernel
print("ready", flush=True)
sys.stdin.readline()
kernel = cached_kernel("fill.cu", "sm_90a", {"KNOB": 1}, ("fill",), Path(sys.argv[1]))
print(hashlib.sha256(kernel.cubin).hexdigest())
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels, with a cache of its own."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "kernels"
    root.mkdir()
    (root / "fill.cu").write_text(SOURCE)
    (root / "value.cuh").write_text("#define VALUE 1\n")
    return root


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one at each real compilation."""
    done: list[str] = []
    compile_kernel = cache.compile_kernel

    def counted(source: str, *arguments: object) -> CompiledKernel:
        done.append(source)
        return compile_kernel(source, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cache, "compile_kernel", counted)
    return done


def fill(root: Path, knob: int = 1, architecture: str = "sm_90a") -> CompiledKernel:
    return cached_kernel("fill.cu", architecture, {"KNOB": knob}, ("fill",), root)


def entries() -> list[Path]:
    return sorted(cache_folder().rglob("*.kernel"))


def test_second_request_is_read_from_disk_and_equal_in_every_field(
    root: Path, compilations: list[str]
) -> None:
    first = fill(root)
    assert fill(root) == first
    assert len(compilations) == 1


def test_every_part_of_the_key_makes_a_new_entry(
    root: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root)
    fill(root, knob=2)
    fill(root, architecture="sm_100a")
    (root / "value.cuh").write_text("#define VALUE 2\n")
    fill(root)
    monkeypatch.setattr(cache, "compiler_version", lambda: "NVRTC 99.0")
    fill(root)
    assert len(compilations) == len(entries()) == 5


def test_what_was_edited_since_its_key_was_made_is_not_kept_under_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_sources_sha256", lambda *_: "of the sources before")
    assert fill(root).cubin
    assert not entries()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text"])
def test_damaged_entry_is_compiled_again_and_replaced(
    root: Path, compilations: list[str], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    whole = fill(root)
    (entry,) = entries()
    data = entry.read_bytes()
    flipped = data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
    entry.write_bytes({"truncated": data[:-1], "flipped": flipped, "empty": b"", "text": b"no entry"}[damage])
    assert fill(root) == whole
    assert "damaged" in caplog.text
    assert entry.read_bytes() == data
    assert fill(root) == whole
    assert len(compilations) == 2


def test_cache_that_cannot_be_written_warns_and_still_compiles(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "file"))
    assert fill(root).cubin
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "XSTAGE_CACHE_DIR" in caplog.text


def test_full_disk_leaves_no_entry_behind(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert fill(root).cubin
    assert "No space left" in caplog.text
    assert entries() == []
    assert [path for path in cache_folder().rglob("*") if path.is_file()] == []


def test_processes_that_compile_one_key_at_once_all_get_the_same_bytes(root: Path) -> None:
    command = [sys.executable, "-c", COMPETITOR, str(root)]
    competitors = [Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(4)]
    for competitor in competitors:
        assert competitor.stdout is not None
        assert competitor.stdout.readline() == "ready\n"
    for competitor in competitors:
        assert competitor.stdin is not None
        competitor.stdin.write("go\n")
        competitor.stdin.flush()
    hashes = {competitor.communicate(timeout=60)[0].strip() for competitor in competitors}
    assert [competitor.returncode for competitor in competitors] == [0] * 4
    assert hashes == {hashlib.sha256(fill(root).cubin).hexdigest()}
    files = [path for path in cache_folder().rglob("*") if path.is_file()]
    assert files == entries()
    assert len(files) == 1
