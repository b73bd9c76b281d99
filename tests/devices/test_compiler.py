"""Compiling kernels on a machine with no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from xstage_tune.base.errors import DeviceError, ExitCode, UsageError, XStageError
from xstage_tune.cuda.compiler import CompiledKernel, KernelCompileError, compile_kernel
from xstage_tune.cuda.compiler_log import first_error, parse_entries, parse_warnings
from xstage_tune.cuda.sources import hash_sources, read_sources
from xstage_tune.cuda.variants import KernelVariant, kernel_variants

#: Machine of a cubin's ELF header: NVIDIA CUDA.
EM_CUDA = 190

COPY = """
#include "common/width.cuh"
template <int N>
__global__ void copy(float* to, const float* from) {
    __shared__ float staging[N * WIDTH];
    staging[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = staging[N * WIDTH - 1 - threadIdx.x];
}
extern "C" __global__ void fill(float* to) { to[threadIdx.x] = VALUE; }
"""

SPILL = """
extern "C" __global__ void __launch_bounds__(1024, 2) spill(float* p) {
    float a[64];
    for (int i = 0; i < 64; ++i) a[i] = p[i * threadIdx.x];
    for (int j = 0; j < 50; ++j)
        for (int i = 0; i < 64; ++i) a[i] = a[i] * a[(i * 7 + j) % 64];
    for (int i = 0; i < 64; ++i) p[i] = a[i];
}
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's cache out of it."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of kernels with one header."""
    root = tmp_path / "kernels"
    (root / "common").mkdir(parents=True)
    (root / "common/width.cuh").write_text("#pragma once\n#define WIDTH 32\n")
    (root / "copy.cu").write_text(COPY)
    return root


def compile_copy(root: Path, architecture: str = "sm_90a") -> CompiledKernel:
    return compile_kernel("copy.cu", architecture, {"VALUE": 7}, ("fill", "copy<4>"), root)


@pytest.mark.parametrize(
    "variant", kernel_variants(), ids=lambda variant: f"{variant.source}{variant.defines}"
)
def test_every_variant_compiles_for_hopper_without_spills_or_warnings(variant: KernelVariant) -> None:
    kernel = compile_kernel(variant.source, "sm_90a", variant.defines, variant.names)
    assert set(kernel.entries) == set(variant.names)
    assert {name: entry.spill_bytes for name, entry in kernel.entries.items()} == dict.fromkeys(
        variant.names, 0
    )
    assert kernel.warnings == ()


def test_cubin_is_an_elf_file_for_cuda(root: Path) -> None:
    kernel = compile_copy(root)
    assert kernel.cubin[:4] == b"\x7fELF"
    assert int.from_bytes(kernel.cubin[18:20], "little") == EM_CUDA


def test_entries_are_known_by_the_name_asked_for_and_give_their_symbol_and_resources(root: Path) -> None:
    entries = compile_copy(root).entries
    assert entries["fill"].symbol == "fill"
    assert entries["copy<4>"].symbol.startswith("_Z4copy")
    assert entries["copy<4>"].shared_bytes == 4 * 32 * 4
    assert entries["fill"].shared_bytes == 0
    assert all(0 < entry.registers <= 255 for entry in entries.values())


def test_defines_change_the_code(root: Path) -> None:
    seven = compile_kernel("copy.cu", "sm_90a", {"VALUE": 7}, ("fill",), root)
    eight = compile_kernel("copy.cu", "sm_90a", {"VALUE": 8}, ("fill",), root)
    assert seven.cubin != eight.cubin
    assert "-DVALUE=8" in eight.options


def test_spills_are_counted_and_warned_of(root: Path) -> None:
    (root / "spill.cu").write_text(SPILL)
    kernel = compile_kernel("spill.cu", "sm_90a", {}, ("spill",), root)
    entry = kernel.entries["spill"]
    assert entry.registers <= 32  # 1024 threads, two CTAs an SM
    assert entry.spill_store_bytes > 0
    assert entry.spill_load_bytes > 0
    assert any("spill" in warning for warning in kernel.warnings)


def test_front_end_warnings_give_file_and_line(root: Path) -> None:
    (root / "common/unused.cuh").write_text("__device__ int f() {\n  int unused;\n  return 1;\n}\n")
    (root / "w.cu").write_text(
        '#include "common/unused.cuh"\nextern "C" __global__ void w(int* p) { *p = f(); }\n'
    )
    (warning,) = compile_kernel("w.cu", "sm_90a", {}, ("w",), root).warnings
    assert warning.startswith("common/unused.cuh:2: variable")


def test_compile_error_is_one_line_with_file_and_line_and_the_log_is_kept(
    root: Path, cache_folder: Path
) -> None:
    (root / "common/width.cuh").write_text("#define WIDTH 32\n__device__ int f() { return missing; }\n")
    with pytest.raises(KernelCompileError) as caught:
        compile_copy(root)
    assert caught.value.message == 'common/width.cuh:2: identifier "missing" is undefined'
    (log,) = (cache_folder / "logs").iterdir()
    assert str(log) in caught.value.hint
    assert 'identifier "missing" is undefined' in log.read_text()
    assert caught.value.exit_code is ExitCode.INTERNAL


def test_compile_error_survives_a_folder_that_takes_no_log(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "file"))
    (root / "copy.cu").write_text("syntax error")
    with pytest.raises(KernelCompileError) as caught:
        compile_copy(root)
    assert caught.value.message.startswith("copy.cu:1: ")
    assert "XSTAGE_CACHE_DIR" in caught.value.hint


def test_assembler_error_names_the_source(root: Path) -> None:
    (root / "a.cu").write_text('extern "C" __global__ void a() { asm volatile("bogus;"); }')
    with pytest.raises(KernelCompileError, match=r"^a\.cu: .*bogus"):
        compile_kernel("a.cu", "sm_90a", {}, ("a",), root)


def test_unknown_kernel_name_is_named(root: Path) -> None:
    with pytest.raises(KernelCompileError, match=r'^copy\.cu: identifier "nothing" is undefined'):
        compile_kernel("copy.cu", "sm_90a", {"VALUE": 1}, ("nothing",), root)


def test_missing_header_is_an_error_at_the_include(root: Path) -> None:
    (root / "a.cu").write_text('\n#include "common/nothing.cuh"\n')
    with pytest.raises(KernelCompileError, match=r"^a\.cu:2: cannot open source file"):
        compile_kernel("a.cu", "sm_90a", {}, (), root)


def test_missing_source_is_named(root: Path) -> None:
    with pytest.raises(XStageError, match=r"absent\.cu"):
        compile_kernel("absent.cu", "sm_90a", {}, (), root)


def test_architecture_that_the_compiler_does_not_know_is_the_environments_fault(root: Path) -> None:
    with pytest.raises(DeviceError, match="sm_12"):
        compile_copy(root, "sm_12")


@pytest.mark.parametrize("architecture", ["90a", "compute_90", "sm_90a -o x", ""])
def test_malformed_architecture_is_refused(root: Path, architecture: str) -> None:
    with pytest.raises(UsageError, match="architecture"):
        compile_copy(root, architecture)


@pytest.mark.parametrize("macro", ["", "1A", "A B", "A(x)"])
def test_malformed_macro_name_is_refused(root: Path, macro: str) -> None:
    with pytest.raises(UsageError, match="macro"):
        compile_kernel("copy.cu", "sm_90a", {macro: 1}, ("fill",), root)


def test_source_hash_covers_headers_and_nothing_else(root: Path) -> None:
    before = hash_sources(read_sources("copy.cu", root))
    (root / "common/other.cuh").write_text("// not included")
    assert hash_sources(read_sources("copy.cu", root)) == before
    (root / "common/width.cuh").write_text("#pragma once\n#define WIDTH 64\n")
    assert hash_sources(read_sources("copy.cu", root)) != before


def test_includes_are_followed_through_headers_and_cycles(root: Path) -> None:
    (root / "common/width.cuh").write_text('#include "beside.cuh"\n  #  include "copy.cu"\n')
    (root / "common/beside.cuh").write_text('#include <cuda_fp16.h>\n#include "../../outside.cuh"\n')
    (root.parent / "outside.cuh").touch()
    assert list(read_sources("copy.cu", root)) == ["common/beside.cuh", "common/width.cuh", "copy.cu"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param("    640 bytes stack frame, 692 bytes spill stores, 720 bytes spill loads", id="13.0"),
        pytest.param(
            "ptxas  .  640 bytes stack frame, 692 bytes spill stores, 720 bytes spill loads", id="13.5"
        ),
    ],
)
def test_resources_are_read_from_the_logs_of_several_compiler_versions(properties: str) -> None:
    log = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for helper
{properties.replace("640", "16")}
ptxas info    : Function properties for k
{properties}
ptxas info    : Used 32 registers, used 1 barriers, 640 bytes cumulative stack size, 128 bytes smem
"""
    (entry,) = parse_entries(log).values()
    assert (entry.symbol, entry.registers, entry.stack_bytes, entry.shared_bytes) == ("k", 32, 640, 128)
    assert entry.spill_bytes == 692 + 720


def test_serialised_wgmma_is_a_warning_reported_once() -> None:
    remark = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async is serialized in 'k'"
    (warning,) = parse_warnings(f"{remark}\n{remark}\nptxas info    : 0 bytes gmem\n", "/kernels")
    assert warning.startswith("(C7510)")


def test_log_without_an_error_still_gives_one_line() -> None:
    message = first_error("something\nwent wrong", "/kernels", "a.cu")
    assert message == "a.cu: something went wrong"
