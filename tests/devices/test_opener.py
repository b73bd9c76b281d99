"""``--device``: what each command takes, opens, and falls back to."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.configs.cases import megamoe_config, moe
from tests.simulator.test_skeletons import skeleton
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.devices import opener
from xstage_tune.devices.fused_kernels import has_kernel
from xstage_tune.devices.spec import CALIBRATE, EMULATE, PROFILE, SEARCH, DeviceSpec, DeviceUse
from xstage_tune.families.kernel_launch import KERNELS, KernelLaunch, run_kernel
from xstage_tune.launches.bursts import BURSTS, COPY_RATES, BurstPoint, CopyProbe
from xstage_tune.launches.device import ComposedDevice, DeviceDescription, LaunchInfo, LaunchKind, Outcome
from xstage_tune.launches.recording import DEFAULT_RECORDING, recording_file
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.platforms.loader import load_platform

HOST = load_platform("h200-host")


@pytest.mark.parametrize(
    ("use", "spec", "parsed"),
    [
        (CALIBRATE, "auto", DeviceSpec("auto")),
        (CALIBRATE, "simulator", DeviceSpec("simulator")),
        (EMULATE, "cuda:3", DeviceSpec("cuda", "3")),
        (EMULATE, "replay:./a.xsemu", DeviceSpec("replay", "./a.xsemu")),
        (PROFILE, "replay", DeviceSpec("replay")),
        (SEARCH, "emulate:1", DeviceSpec("emulate", "1")),
    ],
)
def test_what_a_command_takes(use: DeviceUse, spec: str, parsed: DeviceSpec) -> None:
    assert use.parse(spec) == parsed


@pytest.mark.parametrize("use", [CALIBRATE, EMULATE, PROFILE, SEARCH], ids=lambda use: use.command)
@pytest.mark.parametrize("spec", ["gpu", "", "CUDA", "auto:2", "simulator:1", "cuda:", "cuda:x", "cuda:-1"])
def test_a_malformed_device_is_refused(use: DeviceUse, spec: str) -> None:
    with pytest.raises(UsageError, match="--device"):
        use.parse(spec)


@pytest.mark.parametrize(
    ("use", "spec"),
    [(PROFILE, "simulator"), (SEARCH, "replay:"), (CALIBRATE, "emulate"), (CALIBRATE, "replay:")],
)
def test_a_device_of_another_command_is_refused_with_what_this_one_takes(use: DeviceUse, spec: str) -> None:
    with pytest.raises(UsageError, match="is unknown") as refusal:
        use.parse(spec)
    for kind in use.kinds:
        assert kind in refusal.value.hint


def test_without_a_gpu_auto_says_why_and_cuda_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu(*_: object) -> None:
        raise DeviceError("no NVIDIA driver")

    monkeypatch.setattr(opener, "open_cuda", no_gpu)
    notes: list[str] = []
    assert opener.open_any_cuda(DeviceSpec("auto"), EMULATE, notes.append, "simulating") is None
    assert notes == ["no GPU to run on: no NVIDIA driver; simulating"]
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        opener.open_any_cuda(DeviceSpec("cuda"), EMULATE, notes.append, "simulating")


def test_a_shipped_recording_is_opened_by_name_or_by_file() -> None:
    for which in ("", DEFAULT_RECORDING, str(recording_file("", "emulate"))):
        device = opener.open_replay(EMULATE, which)
        assert isinstance(device, ReplayedDevice)
        assert device.kinds == (SKELETONS.name,)
        device.close()


def test_one_simulator_serves_every_command() -> None:
    """Calibration, emulation and search ask one device, in any order of kinds."""
    device = opener.open_simulator(HOST)
    point = BurstPoint("periodic", "host", "st.v4", 8, 4096, 1000, window_ns=20_000)
    launches = [CopyProbe("host"), point, skeleton(), KernelLaunch(moe(), megamoe_config(block_m=64), "host")]
    launches.append(point)
    outcomes = list(device.run(launches))
    assert [outcome.launch for outcome in outcomes] == launches
    assert [len(outcome.table.spans) > 0 for outcome in outcomes] == [False, True, True, False, True]
    assert outcomes[3].figures == run_kernel(device, moe(), megamoe_config(block_m=64), "host")
    assert set(device.kinds) == {kind.name for kind in (BURSTS, COPY_RATES, SKELETONS, KERNELS)}


class Runs:
    """A runner of some kinds that notes what it is asked."""

    identity = "a runner"

    def __init__(self, *kinds: LaunchKind[Any, Any, Any]) -> None:
        self.kinds = kinds
        self.asked: list[Any] = []
        self.closed = 0

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        info = LaunchInfo("k", "", 0, 0, 0, 1, 1, "2026-01-01T00:00:00+00:00")
        for launch in launches:
            self.asked.append(launch)
            yield Outcome(launch, None, info)

    def close(self) -> None:
        self.closed += 1


def test_a_kind_that_a_device_lacks_is_one_error_that_says_what_it_runs() -> None:
    device = ComposedDevice([Runs(BURSTS, COPY_RATES)])
    with pytest.raises(DeviceError, match="a runner runs no skeletons: it runs bursts, copy-rate"):
        list(device.run([skeleton()]))


def test_outcomes_come_as_they_are_measured() -> None:
    runner = Runs(BURSTS, COPY_RATES)
    outcomes = ComposedDevice([runner]).run([CopyProbe("host"), CopyProbe("peer")])
    next(outcomes)
    assert runner.asked == [CopyProbe("host")]


def test_a_runner_of_two_kinds_is_closed_once() -> None:
    runners = Runs(BURSTS, COPY_RATES), Runs(SKELETONS)
    ComposedDevice(runners).close()
    assert [runner.closed for runner in runners] == [1, 1]


def test_a_search_of_a_kind_without_a_kernel_says_so_before_a_gpu_is_opened() -> None:
    with pytest.raises(DeviceError, match="no fused kernel for a workload of kind 'gemm'"):
        opener.open_kernels(SEARCH.parse("cuda"), HOST, print, kind="gemm")


@pytest.mark.parametrize(
    ("layer", "of"), [(moe(precision="w4a8"), "'test/moe'"), (None, "all workloads of kind 'moe'")]
)
def test_a_layer_that_the_kernel_is_not_for_says_so_before_a_gpu_is_opened(layer: Any, of: str) -> None:
    with pytest.raises(DeviceError, match=f"no fused kernel for {of}") as error:
        opener.open_kernels(SEARCH.parse("cuda"), HOST, print, kind="moe", workload=layer)
    assert "--set precision=w8a8" in error.value.hint


@pytest.mark.parametrize(("precision", "there"), [("bf16", True), ("w8a8", True), ("w4a8", False)])
def test_a_moe_kernel_is_there_for_some_precisions(precision: str, there: bool) -> None:
    assert has_kernel("moe", moe(precision=precision)) == there


def describing(**changes: Any) -> Any:
    """A device that is opened in place of a worker."""
    found = replace(open_replayed_gpu(), **changes)

    class Opened(Runs):
        def __init__(self, open_device: Any, deadline_s: float) -> None:
            super().__init__(KERNELS)
            assert pickle.loads(pickle.dumps(open_device)).args == open_device.args
            assert deadline_s > 0

        def describe(self) -> DeviceDescription:
            return found

    return Opened


def open_replayed_gpu() -> DeviceDescription:
    device = opener.open_replay(CALIBRATE)
    device.close()
    return device.describe()


@pytest.mark.parametrize("spec", ["cuda", "auto"])
def test_kernels_run_on_the_gpu_that_the_platform_is_of(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opener, "present_gpu", lambda: HOST.gpu.identity)
    monkeypatch.setattr(opener, "IsolatedDevice", describing())
    device = opener.open_kernels(SEARCH.parse(spec), HOST, print, kind="attention")
    assert device.identity == "a runner"


def test_another_gpu_is_refused_or_forced_and_marked_and_auto_simulates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opener, "present_gpu", lambda: HOST.gpu.identity)
    monkeypatch.setattr(opener, "IsolatedDevice", describing(name="NVIDIA H100 80GB HBM3"))
    notes: list[str] = []
    with pytest.raises(UsageError, match="calibrated on another GPU"):
        opener.open_kernels(SEARCH.parse("cuda"), HOST, notes.append, kind="attention")
    forced = opener.open_kernels(SEARCH.parse("cuda"), HOST, notes.append, kind="attention", force=True)
    assert "by the profile of another GPU" in forced.identity
    simulated = opener.open_kernels(SEARCH.parse("auto"), HOST, notes.append, kind="attention")
    assert simulated.describe().kind == "simulator"
    assert "simulating" in notes[-1]
