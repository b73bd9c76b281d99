"""Every format parses with the program that it is for."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import xstage_tune
from tests.export.cases import FLASH, WAN, changed, tuned
from xstage_tune.cuda.compiler import compile_kernel
from xstage_tune.export.formats import render
from xstage_tune.export.header import to_header
from xstage_tune.export.history import History, TrialRecord, to_kernel_tuner, to_t4
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import TunedConfig, tuned_from_keys
from xstage_tune.platforms.identity import GpuIdentity
from xstage_tune.platforms.loader import load_platform

#: A value of every schedule, and one config that failed and one that could not be built.
TRIALS = (
    TrialRecord({"block_m": 192, "schedule": "wave", "experts_per_wave": 2}, "complete", (1.5e6,), "t0"),
    TrialRecord({"block_m": 192, "schedule": "interleaved", "lead_rows": 6}, "complete", (1.2e6,), "t1"),
    TrialRecord({"block_m": 128, "schedule": "alternating"}, "complete", (1.4e6,), "t2"),
    TrialRecord({"block_m": 128, "schedule": "interleaved", "lead_rows": 3}, "failed", (), "t3"),
    TrialRecord({"block_m": 256, "schedule": "wave", "experts_per_wave": 1}, "pruned", (), "t4"),
)


@pytest.fixture(params=[FLASH, WAN])
def export(request: pytest.FixtureRequest) -> TunedConfig:
    return tuned(request.param)


@pytest.fixture
def history() -> History:
    return History(tuned(FLASH), TRIALS)


@pytest.mark.parametrize(
    ("to", "parse"), [(ExportFormat.JSON, json.loads), (ExportFormat.TOML, tomllib.loads)]
)
def test_json_and_toml_read_back_equal(export: TunedConfig, to: ExportFormat, parse: Any) -> None:
    text = render(History(export, ()), to)
    assert tuned_from_keys(parse(text), Path("export")) == export
    assert render(History(export, ()), to) == text


@pytest.mark.parametrize(
    ("to", "parse"), [(ExportFormat.JSON, json.loads), (ExportFormat.TOML, tomllib.loads)]
)
def test_a_config_whose_tiles_are_shared_reads_back(to: ExportFormat, parse: Any) -> None:
    shared = with_split(tuned(WAN))
    keys = parse(render(History(shared, ()), to))
    assert keys["config"]["kv_splits"] == 2
    assert tuned_from_keys(keys, Path("export")) == shared


def with_split(export: TunedConfig) -> TunedConfig:
    return export.model_copy(update={"config": export.config.model_copy(update={"kv_splits": 2})})


def test_json_says_what_the_number_is(export: TunedConfig) -> None:
    found = json.loads(render(History(export, ()), ExportFormat.JSON))
    assert found["objective"]["basis"] == "predicted"
    assert {"ns", "default_ns", "bound_ns", "tolerance", "device"} <= set(found["objective"])
    assert found["platform"]["sha256"]
    assert found["provenance"]["tool_version"]


#: NVRTC comes with the tests; the host's compiler is tried where there is one.
COMPILERS = ("nvrtc", "g++") if shutil.which("g++") else ("nvrtc",)


def complaints(compiler: str, program: str, folder: Path) -> str:
    """What a compiler says of a C++17 program with ``folder`` as its place for headers."""
    if compiler == "nvrtc":
        (folder / "use.cu").write_text(program + '\nextern "C" __global__ void use() {}\n')
        return "\n".join(compile_kernel("use.cu", "sm_90a", {}, ("use",), folder).warnings)
    (folder / "use.cpp").write_text(program)
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    ran = subprocess.run(
        [compiler, *options, str(folder / "use.cpp")], capture_output=True, text=True, check=False
    )
    return ran.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_header_compiles_as_cpp17_and_has_the_values(
    compiler: str, export: TunedConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "tuned.h").write_text(to_header(export))
    space = export.workload.name.replace("/", "_").replace("-", "_").replace(".", "_")
    config = export.config.model_dump()
    program = f'#include "tuned.h"\n#include "tuned.h"\nusing namespace xstage_tuned::{space};\n'
    program += (
        f"static_assert(kBlockM == {config['block_m']} && kBlockN == {config['block_n']} && !kMeasured);\n"
    )
    if "kv_splits" in config:
        program += "static_assert(kKvSplits == 1);\n"
    if "schedule" in config:
        program += "static_assert(kSchedule == Schedule::wave && kLeadRows == 0 && kExpertsPerWave > 0);\n"
        program += "static_assert(kPlacement == Placement::even);\n"
    assert complaints(compiler, program, tmp_path) == ""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_header_says_what_it_is_for(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    export = tuned(WAN, platform=load_platform("h200-peer"))
    kernels = export.provenance.kernel_sha256
    assert len(kernels) == 64
    odd = changed(export, platform={"gpu": 'NVIDIA "H200"\\'})
    (tmp_path / "tuned.h").write_text(to_header(odd))
    program = f"""#include "tuned.h"
using namespace xstage_tuned::{WAN.replace("/", "_").replace("-", "_").replace(".", "_")};
static_assert(kGpuSms == 132 && kTokens == {export.workload.tokens});
static_assert(kGpu[0] == 'N' && sizeof(kToolVersion) == {len(xstage_tune.__version__) + 1});
static_assert(sizeof(kKernelSha256) == 65 && kKernelSha256[0] == '{kernels[0]}');
"""
    assert complaints(compiler, program, tmp_path) == ""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_header_says_that_tiles_are_shared(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "tuned.h").write_text(to_header(with_split(tuned(WAN))))
    space = WAN.replace("/", "_").replace("-", "_").replace(".", "_")
    program = f'#include "tuned.h"\nstatic_assert(xstage_tuned::{space}::kKvSplits == 2);\n'
    assert complaints(compiler, program, tmp_path) == ""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_headers_of_several_workloads_go_together(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    for name in (FLASH, WAN, "megamoe/glm-4.5"):
        (tmp_path / f"{name.replace('/', '-')}.h").write_text(to_header(tuned(name)))
    includes = "".join(f'#include "{path.name}"\n' for path in sorted(tmp_path.glob("*.h")))
    assert complaints(compiler, includes, tmp_path) == ""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_headers_of_workloads_named_like_keywords_compile(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    names = (
        "class",
        "int",
        "linux",
        "unix",
        "errno",
        "namespace",
        "co_await",
        "xor_eq",
        "3d",
        "std",
        "a/int",
    )
    for number, name in enumerate(names):
        named = changed(tuned(WAN), workload={"name": name})
        (tmp_path / f"{number}.h").write_text(to_header(named))
    program = "#include <cerrno>\n" if compiler != "nvrtc" else ""
    program += "".join(f'#include "{number}.h"\n' for number in range(len(names)))
    program += "static_assert(xstage_tuned::class_::kTokens == xstage_tuned::a_int::kTokens);\n"
    assert complaints(compiler, program, tmp_path) == ""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_headers_of_one_workload_with_other_keys_or_platforms_go_together(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    exports = (
        tuned(FLASH),
        tuned(FLASH, "tokens_per_rank=128"),
        tuned(FLASH).model_copy(
            update={"platform": tuned(FLASH).platform.model_copy(update={"sha256": "ef" * 32})}
        ),
    )
    for i, export in enumerate(exports):
        (tmp_path / f"{i}.h").write_text(to_header(export))
    includes = "".join(f'#include "{i}.h"\n' for i in range(len(exports)))
    assert complaints(compiler, includes, tmp_path) == ""


def test_a_headers_names_depend_only_on_workload_and_platform() -> None:
    first, later = to_header(tuned(FLASH)), to_header(tuned(FLASH, schedule={"kind": "alternating"}))
    assert first != later
    assert spaces(first) == spaces(later)
    assert len(spaces(first)) == 2


def spaces(header: str) -> list[str]:
    return [line for line in header.splitlines() if "namespace" in line]


def test_a_comment_cannot_be_left_by_what_a_device_is_called() -> None:
    header = to_header(tuned(FLASH, device="odd\n#error name\\"))
    assert all(not line.startswith("#error") for line in header.splitlines())
    assert not any(line.startswith("//") and line.endswith("\\") for line in header.splitlines())


def test_other_tuners_files_carry_the_gpu_and_what_was_forced(history: History) -> None:
    platform = history.tuned.platform.model_copy(
        update={"other_gpu": "sm_count 132, not 78", "compute_origin": "datasheet"}
    )
    forced = replace(history, tuned=history.tuned.model_copy(update={"platform": platform}))
    for environment in (to_kernel_tuner(forced)["environment"], to_t4(forced)["metadata"]["environment"]):
        assert GpuIdentity.model_validate(environment["device_query"]) == platform.gpu_identity
        assert environment["platform"]["sha256"] == platform.sha256
        assert environment["platform"]["other_gpu"] == "sm_count 132, not 78"
        assert environment["provenance"] == history.tuned.provenance.model_dump()
    header = render(forced, ExportFormat.HEADER)
    assert "sm_count 132, not 78" in header
    assert "compute: datasheet" in header


def test_t4_results_have_every_trial_with_its_validity(history: History) -> None:
    found = to_t4(history)
    assert found["schema_version"] == "1.0.0"
    assert [result["invalidity"] for result in found["results"]] == ["correct"] * 3 + [
        "runtime",
        "constraints",
    ]
    assert found["results"][1]["times"]["runtimes"] == [1.2]
    assert found["results"][3]["measurements"] == []


def test_kernel_tuner_keys_are_the_values_in_order(history: History) -> None:
    found = to_kernel_tuner(history)
    assert found["tune_params_keys"] == ["block_m", "schedule", "experts_per_wave", "lead_rows"]
    assert found["cache"]["192,interleaved,0,6"]["time"] == 1.2
    assert found["cache"]["128,interleaved,0,3"]["time"] == "RuntimeFailedConfig"
    assert found["tune_params"]["lead_rows"] == [0, 3, 6]
    assert "predicted" in found["device_name"]


def test_a_measured_study_names_the_gpu_alone() -> None:
    measured = History(tuned(FLASH, basis="measured", device="cuda:0"), TRIALS)
    assert to_kernel_tuner(measured)["device_name"] == measured.tuned.platform.gpu
