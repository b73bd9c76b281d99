"""``calibrate --device simulator``: a platform calibrated against itself gives its own law back.

The tolerances are the model's. While the shared room limits, rates sum to R exactly, and a burst that has
room waits for nothing: R and T0 are off by what a tick and a finite window cut, 0.1%. A knee is
found between volumes 10% apart: Q to half a step. Ports are told by which SMs gain when others idle, which
has no noise here: exactly, and their shares to what the bursts of a window resolve, half a percent.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import RunCli
from tests.simulator.test_skeletons import HOST
from xstage_tune.base.errors import UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.calibration.procedure import calibrate
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.devices.platform_choice import choose_platform
from xstage_tune.platforms.loader import load_platform, save_platform, user_platforms_dir
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.platforms.rooms import shared_room_bytes
from xstage_tune.platforms.schema import (
    Arbitration,
    ArbitrationGroup,
    CapacityPoint,
    IssuePoint,
    PlatformProfile,
)
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.store.facade import Store

PORTS = (tuple(range(6)), tuple(range(6, 15)), tuple(range(15, 24)), tuple(range(24, 33)))


def quarter() -> PlatformProfile:
    """A quarter of an H200: four ports of unequal size on two branches; SMs add own rooms to a shared one."""
    groups = tuple(
        ArbitrationGroup(sm_ids=port, share=0.25, branch=number // 2) for number, port in enumerate(PORTS)
    )
    capacity = tuple(
        CapacityPoint(
            flavour=flavour,
            producers=k,
            bytes=900_000 + own_bytes * k,
            knee_reached=True,
            source="made up",
        )
        for flavour, own_bytes in (("st.v4", 40_000), ("tma", 32_000))
        for k in (2, 8, 16, 33)
    )
    return HOST.model_copy(
        update={
            "name": "quarter",
            "issue": tuple(point for point in HOST.issue if point.producers <= 33),
            "capacity": capacity,
            "capacity_law": (),
            "gpu": HOST.gpu.model_copy(update={"sm_count": 33}),
            "arbitration": Arbitration(groups=groups, repeat_correlation=1.0, source="made up"),
        }
    )


PLATFORM = quarter()


@pytest.fixture(scope="module")
def fitted() -> PlatformProfile:
    request = CalibrationRequest(path="host", flavours=("st.v4", "tma"), budget="quick")
    result = calibrate(SimulatedDevice(PLATFORM), request, NoProgress())
    assert not result.refused
    return result.platform


def test_the_drain_rate_comes_back(fitted: PlatformProfile) -> None:
    assert fitted.drain.bytes_per_s == pytest.approx(PLATFORM.drain.bytes_per_s, rel=1e-3)


def never_waits(point: IssuePoint) -> bool:
    """Whether the shared room, or the producer's own one, takes all of a burst."""
    shared_bytes = shared_room_bytes(PLATFORM, point.flavour)
    own_bytes = float(capacity_bytes(PLATFORM, point.flavour, point.producers)) - shared_bytes
    return point.producers * point.burst_bytes <= max(shared_bytes, own_bytes)


def test_issue_times_come_back_where_nothing_waits(fitted: PlatformProfile) -> None:
    free = [point for point in fitted.issue if never_waits(point)]
    assert {point.flavour for point in free} == {"st.v4", "tma"}
    for point in free:
        own_ns = float(issue_ns(PLATFORM, point.flavour, point.producers, point.burst_bytes))
        assert point.ns == pytest.approx(own_ns, rel=1e-3)


def test_capacities_come_back(fitted: PlatformProfile) -> None:
    assert {(point.flavour, point.producers) for point in fitted.capacity} >= {("st.v4", 33), ("tma", 33)}
    for point in fitted.capacity:
        assert point.knee_reached
        own = float(capacity_bytes(PLATFORM, point.flavour, point.producers))
        assert point.bytes == pytest.approx(own, rel=0.05)


def test_ports_and_branches_come_back(fitted: PlatformProfile) -> None:
    assert fitted.arbitration is not None
    groups = sorted(fitted.arbitration.groups, key=lambda group: group.sm_ids)
    assert tuple(group.sm_ids for group in groups) == PORTS
    assert [group.share for group in groups] == pytest.approx([0.25] * 4, abs=0.005)
    branches = [group.branch for group in groups]
    assert branches[0] == branches[1] != branches[2] == branches[3]


def test_the_command_marks_the_profile_and_never_takes_it_for_a_gpu_s_own(
    run_cli: RunCli, own_store: Path, tmp_path: Path
) -> None:
    named, out = tmp_path / "quarter.toml", tmp_path / "own.toml"
    save_platform(PLATFORM, named)
    asked = (
        "--device",
        "simulator",
        "--platform",
        str(named),
        "--budget",
        "quick",
        "--store-flavour",
        "st.v4",
    )
    result = run_cli("calibrate", *asked, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found["profile"] is None
    assert not user_platforms_dir().exists() or not list(user_platforms_dir().iterdir())
    recording, replayed = tmp_path / "run.xsrec", tmp_path / "replayed.toml"
    assert run_cli("calibrate", *asked, "--out", str(out), "--record", str(recording)).exit_code == 0
    replay = run_cli("calibrate", "--device", f"replay:{recording}", "--out", str(replayed))
    assert replay.exit_code == 0
    written = load_platform(str(out))
    assert written.name == load_platform(str(replayed)).name == "simulated-h200-host"
    assert written.description.startswith("simulation of NVIDIA H200")
    assert written.provenance.gpu_uuid.startswith("SIM-")
    assert written.provenance.host == ""
    with Store.open(own_store) as store:
        kinds = [run.environment.device_kind for run in store.runs()]
    assert kinds == ["replay", "simulator", "simulator"]


def test_a_simulated_profile_is_not_found_for_the_gpu(
    monkeypatch: pytest.MonkeyPatch, fitted: PlatformProfile, tmp_path: Path
) -> None:
    """Even in the folder of the user's own platforms."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    save_platform(fitted, user_platforms_dir() / f"{fitted.name}.toml")
    gpu = SimulatedDevice(PLATFORM).describe()
    real = replace(gpu, kind="cuda", uuid="GPU-1")
    with pytest.raises(UsageError, match="you have calibrated none"):
        choose_platform(None, print, device=real, path="host")
    assert choose_platform(fitted.name, print) == fitted


def test_what_is_simulated_is_named_only_to_the_simulator(run_cli: RunCli) -> None:
    result = run_cli("calibrate", "--device", "replay", "--platform", "h200-host")
    assert result.exit_code == 2
    assert "nothing is simulated" in result.stderr


def test_a_path_that_the_platform_lacks_is_refused(run_cli: RunCli, own_store: Path) -> None:
    command = ("calibrate", "--device", "simulator", "--platform", "h200-host")
    result = run_cli(*command, "--path", "peer")
    assert result.exit_code == 3
    assert "no path 'peer'" in result.stderr
    assert own_store.exists()
