"""The launches of an emulation and what is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.configs.cases import attention, attention_config, megamoe_config, moe
from tests.emulation.gpu import HOST, ScriptedGpu
from tests.h200 import H200
from xstage_tune.base.errors import DeviceError, FindingError, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.base.spans import SpanKind
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES, cases_of, skeleton_of
from xstage_tune.experiments.emulation.prediction import closed_form
from xstage_tune.experiments.emulation.procedure import emulate
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.result import EmulationResult, conclude, error_pct
from xstage_tune.experiments.emulation.session import run_emulation
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.launches.device import Device, GpuState, LaunchInfo, Outcome
from xstage_tune.model.attention import converged_tokens
from xstage_tune.model.moe import lead_knee_rows
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.store.facade import Store

CONFIG = megamoe_config(Schedule(kind="interleaved", lead_rows=8), block_m=64)
MOE = EmulationRequest(
    workload=moe(tokens_per_rank=256),
    platform=HOST,
    config=CONFIG,
    schedules=("wave", "interleaved", "alternating"),
    path="host",
    repeats=4,
)
ATTENTION = MOE.changed(workload=attention(), config=attention_config(), schedules=("spread",), repeats=2)


class Watching(SimulatedDevice):
    """The simulator, and what it was asked."""

    def __init__(self) -> None:
        super().__init__(HOST)
        self.total = 0
        self.seen: list[tuple[int, str]] = []

    def planned(self, total: int) -> None:
        self.total = total

    def advance(self, label: str) -> None:
        pass

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        for run in super().run(launches):
            self.seen.append((run.launch.repeat, run.launch.label))
            yield run


def concluded(request: EmulationRequest, device: Device | None = None) -> EmulationResult:
    device = device or ScriptedGpu()
    untimed = device if device.describe().kind == "cuda" else None
    launches = emulate(device, request, NoProgress(), untimed=untimed)
    return conclude(request, launches, run_id="run", device=device.identity, device_name="H200")


def test_every_case_runs_as_often_and_each_round_begins_with_another() -> None:
    watching = Watching()
    launches = emulate(watching, MOE, watching)
    names = [case.label for case in cases_of(MOE)]
    assert watching.total == len(watching.seen) == 12
    assert {label: len(figures) for label, figures in launches.items()} == dict.fromkeys(names, 4)
    by_round = [[label for repeat, label in watching.seen if repeat == r] for r in range(4)]
    assert by_round[:3] == [names, names[1:] + names[:1], names[2:] + names[:2]]
    assert by_round[3] == names


def test_a_gpu_runs_one_round_that_nobody_times(tmp_path: Path) -> None:
    gpu = ScriptedGpu()
    with Store.open(tmp_path / "store.db") as store:
        result = run_emulation(gpu, MOE, store, argv=[], progress=NoProgress())
        assert [len(labels) for labels in gpu.asked] == [3, 12]
        assert len(store.launches(result.run_id)) == 12
        assert gpu.labels == [result.run_id]


def test_a_platform_of_another_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'h200-host' is of a GPU with 132 SMs, NVIDIA H200 has 108"):
        emulate(ScriptedGpu(description=replace(H200, sm_count=108)), MOE, NoProgress())


def test_a_device_without_the_path_is_refused() -> None:
    with pytest.raises(DeviceError, match="no path 'host'"):
        emulate(ScriptedGpu(description=replace(H200, paths=("local",))), MOE, NoProgress())


def test_data_that_did_not_arrive_name_path_and_skeleton() -> None:
    with pytest.raises(FindingError, match=r"64 of 4096 bytes did not arrive on path 'host' \(wave of"):
        concluded(MOE, ScriptedGpu(mismatched_bytes=64))


def test_figures_are_those_of_the_spans() -> None:
    """Totals and spans tell the same launch."""
    skeleton = skeleton_of(cases_of(MOE)[0], MOE)
    (run,) = SimulatedDevice(HOST).run([skeleton])
    figures, kind, duration_ns = run.figures, run.table.spans["kind"], run.table.duration_ns()
    sms = skeleton.streams.sms
    assert figures.issue_p50_ns is not None
    assert figures.issue_p50_ns <= (figures.issue_p90_ns or 0) <= (figures.issue_p99_ns or 0)
    assert figures.stall_ns == pytest.approx(
        duration_ns[kind == SpanKind.STAGING_STALL].sum() / sms, rel=1e-3
    )
    waits_ns = duration_ns[kind == SpanKind.DEPENDENCY_WAIT].sum() / sms
    assert figures.dependency_wait_ns == pytest.approx(waits_ns, rel=1e-3)
    active = duration_ns[kind == SpanKind.MAINLOOP].sum() / (sms * figures.makespan_ns)
    assert figures.tensor_active == pytest.approx(active, rel=1e-3)
    assert figures.issue_all_mean_ns == pytest.approx(duration_ns[kind == SpanKind.ISSUE].mean(), rel=1e-3)


def test_the_simulator_predicts_a_device_that_is_one() -> None:
    result = concluded(MOE.changed(repeats=3))
    for one in result.cases:
        # The untimed round took the first seed; start times within 32 ns matter little to tens of us.
        assert error_pct(one.simulated_makespan_ns, one.makespan_ns) == pytest.approx(0.0, abs=1.0)
    ratios = result.interleaved_over_wave()
    assert ratios["emulated"] == pytest.approx(ratios["simulated"], rel=0.02)
    wave, interleaved = result.of("wave"), result.of("interleaved")
    assert wave is not None
    assert interleaved is not None
    assert ratios["emulated"] == wave.makespan_ns / interleaved.makespan_ns


def test_the_simulator_has_no_prediction_beside_itself() -> None:
    result = concluded(MOE, SimulatedDevice(HOST))
    assert all(one.simulated is None and one.closed is not None for one in result.cases)


def test_the_control_has_no_predictions() -> None:
    class Local(ScriptedGpu):
        def run(self, launches):  # type: ignore[no-untyped-def]
            return super().run([replace(skeleton, path="host") for skeleton in launches])

    result = concluded(MOE.changed(path="local"), Local())
    assert all(one.simulated is None and one.closed is None for one in result.cases)
    assert result.landmarks.lead_knee_rows is None


def test_without_backpressure_the_closed_form_is_the_launch() -> None:
    """No dependencies and nothing remote: mainloops of the busiest SM, and its last tile's local stores."""
    layer = moe(tokens_per_rank=256, remote_fraction=0.0)
    request = MOE.changed(
        workload=layer, dependencies=False, given=GivenTimes(l1_ns=9e3, l2_ns=7e3, epilogue_ns=500.0)
    )
    (case, *_) = cases_of(request)
    skeleton = skeleton_of(case, request)
    (run,) = SimulatedDevice(HOST).run([skeleton])
    closed = closed_form(case, skeleton, request)
    assert closed.issue_ns is None
    assert closed.stall_ns == 0
    # CTAs start up to a tick of 32 ns late; the last tile may store less than the most of any.
    assert run.figures.makespan_ns == pytest.approx(closed.makespan_ns, abs=1000.0)


def test_landmarks_are_those_of_the_equations() -> None:
    knee = lead_knee_rows(block_n=CONFIG.block_n, producers=132, intermediate=MOE.workload.intermediate)  # type: ignore[union-attr]
    assert concluded(MOE.changed(repeats=1)).landmarks.lead_knee_rows == pytest.approx(float(knee))
    found = concluded(ATTENTION.changed(repeats=1))
    marks = found.landmarks
    assert marks.lead_knee_rows is None
    assert marks.converged_tokens is not None
    assert marks.converged_tokens > 0
    assert float(converged_tokens(recovery_gap_ns=0.0, block_n=128, kv_tile_ns=1609.0)) == 0


def test_the_residual_is_against_the_launch_without_remote_stores() -> None:
    result = concluded(ATTENTION)
    (residual,) = result.residuals()
    fused, alone = result.of("spread"), result.of(WITHOUT_STORES)
    assert fused is not None
    assert alone is not None
    assert residual.emulated_ns == fused.makespan_ns - alone.makespan_ns
    assert residual.simulated_ns == pytest.approx(residual.emulated_ns, abs=1.0)
    assert fused.closed is not None
    assert alone.closed is not None
    assert residual.closed_ns == max(0.0, fused.closed.makespan_ns - alone.closed.makespan_ns)
    assert alone.keys()["emulated"]["issue_mean_ns"] is None


def test_waiting_for_completion_never_exposes_less() -> None:
    (free,), (coupled,) = (
        concluded(ATTENTION.changed(completion_coupled=on)).residuals() for on in (False, True)
    )
    assert coupled.emulated_ns >= free.emulated_ns
    assert (coupled.closed_ns or 0) >= (free.closed_ns or 0)


def test_a_launch_beside_a_held_down_clock_is_counted() -> None:
    info = LaunchInfo("k", "", 0, 0, 0, 1, 1, "2026-01-01T00:00:00+00:00")
    assert not info.throttled
    assert not replace(info, before=GpuState(1980, None, None, None, ("gpu_idle",))).throttled
    assert replace(info, after=GpuState(1200, None, None, None, ("sw_power_cap",))).throttled


@pytest.mark.parametrize("emulated", [None, 0.0, -5.0, 1e-310, 3e-12])
def test_there_is_no_error_of_nothing(emulated: float | None) -> None:
    """The difference of two equal times is often their last digits: 1e16% of them says nothing."""
    assert error_pct(700.0, emulated) is None
