"""``doctor``: what each state of a machine reads as, and with which status the command ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import pytest

from tests.conftest import RunCli
from tests.devices.fake_nvml import FakeNvml
from tests.h200 import H200
from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import DeviceError, ExitCode, XStageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.provenance import collect_software
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanTable
from xstage_tune.cuda import nvml
from xstage_tune.doctor import gpu, machine, run
from xstage_tune.doctor.report import Check, DoctorReport
from xstage_tune.doctor.run import run_checks
from xstage_tune.launches import recording
from xstage_tune.launches.bursts import BurstPoint, BurstRun
from xstage_tune.launches.device import DeviceDescription, LaunchInfo, Outcome, Verification
from xstage_tune.store.facade import Store

WHOLE = Verification(checked_bytes=16384, mismatched_bytes=0)
DESCRIPTION = replace(H200, paths=("local", "host", "peer"))
GPU_ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetPowerUsage": 100_000,
    "nvmlDeviceGetTemperature": 40,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlSystemGetDriverVersion": "580.82.07",
    "nvmlSystemGetCudaDriverVersion_v2": 13000,
}


class FakeGpu:
    """A GPU whose transfers end as told: a verification, or an error."""

    identity = "a GPU"
    kinds = ("bursts",)

    def __init__(self, outcomes: dict[StorePath, Verification | XStageError]) -> None:
        self.outcomes = outcomes
        self.closed = False

    def describe(self) -> DeviceDescription:
        return replace(DESCRIPTION, paths=tuple(self.outcomes))

    def label_launches(self, run_id: str) -> None:
        raise NotImplementedError

    def run(self, launches: Iterable[BurstPoint]) -> Iterator[BurstRun]:
        info = LaunchInfo("k", "", 32, 0, 0, 32, 1, "2026-01-01T00:00:00")
        for point in launches:
            outcome = self.outcomes.get(point.path, DeviceError("no other GPU in this process"))
            if isinstance(outcome, XStageError):
                raise outcome
            table = SpanTable(np.zeros(0, SPAN_DTYPE), np.zeros(point.producers, LANE_DTYPE))
            yield Outcome(point, None, info, outcome, table)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, no driver, no store, an empty cache, no recordings, wherever the tests run."""

    def no_gpu(*_: object) -> Any:
        raise DeviceError("no NVIDIA driver", "install it")

    monkeypatch.setattr(nvml, "pynvml", FakeNvml({}, present=False))
    monkeypatch.setattr(run, "open_cuda", no_gpu)
    monkeypatch.setattr(recording, "data_dir", lambda _: tmp_path / "profiles")
    monkeypatch.setenv("XSTAGE_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def fake_driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a driver with one healthy GPU; keyword arguments change its answers."""

    def install(**answers: Any) -> None:
        monkeypatch.setattr(nvml, "pynvml", FakeNvml(GPU_ANSWERS | answers))

    return install


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, fake_driver: Callable[..., None]) -> Callable[..., FakeGpu]:
    """Put a GPU in the machine; keyword arguments say how the transfer over each path ends."""

    def install(**outcomes: Verification | XStageError) -> FakeGpu:
        fake_driver()
        device = FakeGpu({"local": WHOLE, "host": WHOLE, **outcomes})  # type: ignore[dict-item]
        monkeypatch.setattr(run, "open_cuda", lambda *_: device)
        return device

    return install


def row(report: DoctorReport, name: str) -> Check:
    (check,) = (check for check in report.checks if check.name == name)
    return check


def write_recording(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.xsrec"
    point = BurstPoint("periodic", "host", "st.v4", 1, 4096, 0, window_ns=1)
    table = SpanTable(np.zeros(3, SPAN_DTYPE), np.zeros(1, LANE_DTYPE))
    launch = LaunchInfo("k", "", 32, 0, 0, 32, 1, "2026-01-01T00:00:00")
    with recording.new_recording(file, "calibrate", DESCRIPTION, "an H200", {}) as writer:
        writer.keep(Outcome(point, None, launch, WHOLE, table))
    return file


def test_machine_without_a_gpu_is_no_failure_and_says_what_can_run(run_cli: RunCli, tmp_path: Path) -> None:
    write_recording(tmp_path / "profiles/recordings", "h200-host")
    result = run_cli("doctor")
    assert result.exit_code == ExitCode.OK
    assert "can run: xstage-tune calibrate --device replay:h200-host" in result.stdout
    assert result.stderr == ""


def test_rows_that_need_a_gpu_are_not_run_rather_than_failed() -> None:
    report = run_checks()
    not_run = [check.name for check in report.checks if check.status == "not-run"]
    assert not_run == ["driver", "gpus", "device", "path.local", "path.host", "path.peer"]
    assert report.failed() == []
    assert report.runnable


def test_every_row_that_is_not_ok_has_a_reason_and_names_are_unique() -> None:
    checks = run_checks().checks
    assert all(check.seen for check in checks)
    assert len({check.name for check in checks}) == len(checks)


@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_gpu_asked_for_by_name_and_missing_exits_3(run_cli: RunCli, device: str) -> None:
    result = run_cli("doctor", "--device", device)
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert f"--device {device} cannot run: no NVIDIA driver" in result.stderr
    assert "path.host" in result.stdout


@pytest.mark.parametrize("device", ["gpu", "replay:nothing"])
def test_unknown_device_is_a_usage_error(run_cli: RunCli, device: str) -> None:
    result = run_cli("doctor", "--device", device)
    assert result.exit_code == ExitCode.USAGE
    assert result.stdout == ""


def test_json_stands_alone_on_stdout_with_sorted_keys_and_repeats_to_the_byte(run_cli: RunCli) -> None:
    first = run_cli("doctor", "--format", "json")
    assert first.stdout == run_cli("doctor", "--format", "json").stdout
    value = json.loads(first.stdout)
    assert list(value) == sorted(value)
    assert {"advice", "name", "seen", "status"} == set(value["checks"][0])
    assert value["device"] == "auto"


def test_whole_gpu_offers_its_paths_and_is_closed(fake_gpu: Callable[..., FakeGpu]) -> None:
    device = fake_gpu(peer=WHOLE)
    report = run_checks("cuda:0")
    assert [row(report, f"path.{path}").status for path in ("local", "host", "peer")] == ["ok"] * 3
    assert report.commands == (
        "xstage-tune calibrate --device cuda:0 --path peer",
        "xstage-tune calibrate --device cuda:0 --path host",
    )
    assert report.runnable
    assert device.closed


def test_single_gpu_has_no_peer_path_and_still_runs(
    fake_gpu: Callable[..., FakeGpu], run_cli: RunCli
) -> None:
    fake_gpu()
    report = run_checks("cuda")
    assert row(report, "path.peer") == Check("path.peer", "not-run", "no other GPU in this process")
    assert row(report, "topology").status == "not-run"
    assert report.commands == ("xstage-tune calibrate --device cuda:0 --path host",)
    assert run_cli("doctor", "--device", "cuda").exit_code == ExitCode.OK


def test_peer_access_that_delivers_wrong_data_fails_and_names_the_iommu(
    fake_gpu: Callable[..., FakeGpu], run_cli: RunCli
) -> None:
    fake_gpu(peer=Verification(16384, 16))
    peer = row(run_checks("cuda"), "path.peer")
    assert peer.status == "fail"
    assert peer.seen.startswith("16 of 16384 bytes arrived wrong")
    assert "IOMMU" in peer.seen
    assert "iommu=pt" in peer.advice
    result = run_cli("doctor", "--device", "cuda")
    assert result.exit_code == ExitCode.FINDING
    assert "path.peer: 16 of 16384 bytes arrived wrong" in result.stderr


def test_transfer_of_nothing_proves_nothing(fake_gpu: Callable[..., FakeGpu]) -> None:
    fake_gpu(host=Verification(0, 0))
    assert row(run_checks("cuda"), "path.host").status == "fail"


def test_gpu_without_a_working_remote_path_exits_3(fake_gpu: Callable[..., FakeGpu], run_cli: RunCli) -> None:
    fake_gpu(host=DeviceError("cannot pin 512 MiB of host memory: CUDA_ERROR_OUT_OF_MEMORY"))
    host = row(run_checks("cuda"), "path.host")
    assert host.status == "error"
    assert "locked memory: " in host.seen
    assert "memlock" in host.advice
    result = run_cli("doctor", "--device", "cuda")
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "cannot pin 512 MiB" in result.stderr


def test_gpu_whose_own_memory_is_wrong_cannot_be_calibrated(fake_gpu: Callable[..., FakeGpu]) -> None:
    fake_gpu(local=Verification(16384, 16384))
    assert not run_checks("cuda").runnable


@pytest.mark.parametrize(
    ("supported", "nvrtc", "status"),
    [
        (13000, (13, 5), "ok"),  # minor version compatibility
        (14000, (13, 0), "ok"),  # drivers run all older code
        (12090, (13, 0), "fail"),
        (12090, (12, 4), "ok"),
    ],
)
def test_driver_must_be_of_the_compilers_cuda_major_version_or_later(
    fake_driver: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    supported: int,
    nvrtc: tuple[int, int],
    status: str,
) -> None:
    fake_driver(nvmlSystemGetCudaDriverVersion_v2=supported)
    monkeypatch.setattr(gpu, "nvrtc_version", lambda: nvrtc)
    (check,) = gpu.check_driver()
    assert check.status == status
    assert f"CUDA {nvrtc[0]}.0 or later" in check.seen


def test_driver_without_a_compiler_is_a_warning(
    fake_driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> tuple[int, int]:
        raise DeviceError("no NVRTC", "pip install it")

    fake_driver()
    monkeypatch.setattr(gpu, "nvrtc_version", missing)
    (check,) = gpu.check_driver()
    assert (check.status, check.advice) == ("warn", "pip install it")


@pytest.mark.parametrize(
    ("answers", "name", "status", "words"),
    [
        ({}, "gpu.0", "ok", "MIG off"),
        ({"nvmlDeviceGetMigMode": [1, 1]}, "gpu.0", "warn", "MIG on"),
        ({"nvmlDeviceGetMPSComputeRunningProcesses": [0]}, "gpu.0", "warn", "1 processes share it by MPS"),
        ({}, "clocks.0", "ok", "gpu_idle"),
        ({"nvmlDeviceGetCurrentClocksEventReasons": 0x40}, "clocks.0", "warn", "hw_thermal_slowdown"),
        ({"nvmlDeviceGetEnforcedPowerLimit": 700_000}, "clocks.0", "ok", "100 W of 700 W"),
    ],
)
def test_settings_of_a_gpu(
    fake_driver: Callable[..., None], answers: dict[str, Any], name: str, status: str, words: str
) -> None:
    fake_driver(**answers)
    check = row(run_checks(), name)
    assert check.status == status
    assert words in check.seen


def test_virtual_machine_that_hides_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = {name: answer for name, answer in GPU_ANSWERS.items() if name != "nvmlDeviceGetClockInfo"}
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(hidden))
    assert row(run_checks(), "clocks.0").status == "not-run"


def test_hidden_and_renumbered_gpus_are_pointed_out(
    fake_driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert "CUDA_VISIBLE_DEVICES=1,0" in row(run_checks(), "gpus").seen


def test_pairs_of_gpus_without_peer_stores_are_named(fake_driver: Callable[..., None]) -> None:
    def status(source: int, target: int, _capability: int) -> int:
        return 0 if {source, target} == {0, 1} else pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED

    fake_driver(nvmlDeviceGetCount=3, nvmlDeviceGetP2PStatus=status)
    topology = row(run_checks(), "topology")
    assert topology.status == "warn"
    assert "2 of 6 directed pairs: read ok, write ok, NVLink ok" in topology.seen
    assert "no stores from GPU 0 to 2, 1 to 2, 2 to 0, 2 to 1" in topology.seen


def test_missing_compiler_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise DeviceError("NVRTC is not available", "pip install 'xstage-tune[cuda]'")

    monkeypatch.setattr(machine, "compile_kernel", missing)
    assert row(run_checks(), "compiler").status == "not-run"


def test_kernel_that_does_not_compile_is_an_error_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise XStageError("verify.cu:3: syntax error", "read the log")

    monkeypatch.setattr(machine, "compile_kernel", broken)
    assert row(run_checks(), "compiler") == Check(
        "compiler", "error", "verify.cu:3: syntax error", "read the log"
    )


def test_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "file"))
    (check,) = machine.check_kernel_cache()
    assert check.status == "warn"
    assert "XSTAGE_CACHE_DIR" in check.advice


def test_store_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    (check,) = machine.check_store(tmp_path / "new/store.db")
    assert check.status == "ok"
    assert "the first run makes it" in check.seen
    assert not (tmp_path / "new").exists()


def test_store_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (check,) = machine.check_store(tmp_path / "file/store.db")
    assert check.status == "fail"


def test_whole_store_is_ok_and_a_damaged_one_fails(tmp_path: Path, run_cli: RunCli) -> None:
    path = tmp_path / "made.db"
    Store.open(path).close()
    (check,) = machine.check_store(path)
    assert check.status == "ok"
    path.write_bytes(b"this is no database" * 100)
    (check,) = machine.check_store(path)
    assert check.status == "fail"
    assert run_cli("doctor", "--store", str(path)).exit_code == ExitCode.FINDING


def test_broken_profile_of_the_user_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data/xstage-tune/platforms"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("name = 3")
    check = next(check for check in machine.check_profiles() if check.name == "platforms")
    assert check.status == "fail"
    assert "mine.toml" in check.seen


def test_damaged_recording_fails_and_offers_no_replay(tmp_path: Path) -> None:
    file = write_recording(tmp_path / "profiles/recordings", "good")
    assert row(run_checks(), "recording.good").status == "ok"
    data = file.read_bytes()
    (file.parent / "torn.xsrec").write_bytes(data[: len(data) // 2])
    report = run_checks()
    assert row(report, "recording.torn").status == "fail"
    assert report.commands == ("xstage-tune calibrate --device replay:good",)


def test_damaged_profile_run_fails(tmp_path: Path) -> None:
    shipped = (data_dir("profiles") / "recordings/h200-host.xsprof").read_bytes()
    folder = tmp_path / "profiles/recordings"
    folder.mkdir(parents=True)
    (folder / "good.xsprof").write_bytes(shipped)
    (folder / "torn.xsprof").write_bytes(shipped[: len(shipped) // 2])
    damaged = bytearray(shipped)
    damaged[200] ^= 0xFF  # in the spans of a launch, far from the manifest
    (folder / "spans.xsprof").write_bytes(damaged)
    report = run_checks()
    good = row(report, "profile.good")
    assert (good.status, good.advice) == ("ok", "")
    with closing(recording.Recording(folder / "good.xsprof", "profile")) as opened:
        launches = len(opened.manifest.launches)
    assert good.seen.startswith(f"{launches} launches, NVIDIA H200, kernels ")
    for name in ("profile.torn", "profile.spans"):
        assert row(report, name).status == "fail"
        assert "record anew with: xstage-tune profile --record FILE" in row(report, name).advice


def test_recording_asked_for_by_name_is_the_device(tmp_path: Path) -> None:
    file = write_recording(tmp_path, "mine")
    report = run_checks(f"replay:{file}")
    assert row(report, "device").seen.startswith("recording of NVIDIA H200, sm_90a, 132 SMs")
    assert row(report, "path.host").status == "not-run"


def test_missing_cuda_packages_are_a_warning() -> None:
    bare = replace(collect_software(["doctor"]), packages={"numpy": "2.0"})
    (check,) = machine.check_packages(bare)
    assert check.status == "warn"
    assert "without cuda-bindings, cuda-core" in check.seen


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "1073741824\n"}, 1 << 30),
        ({"memory.max": "max\n"}, -1),
        ({"memory/memory.limit_in_bytes": "4096\n"}, 4096),
        ({}, -1),
    ],
)
def test_memory_limit_of_a_container(tmp_path: Path, files: dict[str, str], limit: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert gpu.cgroup_limit_bytes(tmp_path) == limit


def test_iommu_is_seen_when_the_kernel_lists_one(tmp_path: Path) -> None:
    assert gpu.iommu(tmp_path / "absent") == gpu.iommu(tmp_path) == "no IOMMU is active"
    (tmp_path / "dmar0").touch()
    assert gpu.iommu(tmp_path) == "an IOMMU is active"


def test_software_asks_git_only_when_told() -> None:
    software = collect_software(["xstage-tune", "doctor"])
    assert software.git_state == ""
    assert software.argv == ("xstage-tune", "doctor")
    assert software.packages["numpy"] == np.__version__
