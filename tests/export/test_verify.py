"""A deployed config is measured again beside the default: same, better, worse or not comparable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunCli
from tests.h200 import H200
from tests.search.test_measured import InTurn
from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.devices.recorded_kernels import ReplayedKernels
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import TunedConfig
from xstage_tune.export.study import export_study
from xstage_tune.export.verify import Verdict, judge, read_measurable, verify
from xstage_tune.families.binding import default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.in_turn import Interval
from xstage_tune.launches.recording import recording_file
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import begin_study
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.space import build_space
from xstage_tune.store.facade import Store

SPACE = "h200-host-fa-8192x3"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a search of a space on record."""
    folder = tmp_path_factory.mktemp("deployed")
    layer = load_workload("fa-a2a/paper", ["tokens=8192", "heads=24"])
    asked = SearchRequest(workload=layer, platform=load_platform("h200-host"), trials=6)
    space = build_space(layer, asked.platform)
    with (
        closing(ReplayedKernels(recording_file(SPACE, "search"))) as device,
        Store.open(folder / "store.db") as store,
    ):
        run_search(asked, space, device, begin_study(store, asked, space, device.identity), NoProgress())
        export_study(store, "latest", ExportFormat.JSON, folder / "tuned.json")
    return folder / "tuned.json"


class Machine(InTurn):
    """One that runs the export's config in a part of the default's time."""

    def __init__(self, tuned: TunedConfig, part: float | None, **identity: Any) -> None:
        self._tuned, self._part = tuned, part
        super().__init__(lambda config: 1e5 * ((part or 1.0) if config == tuned.config else 1.0))
        self._description = replace(H200, **identity)

    def describe(self) -> Any:
        return self._description

    def run(self, launches: Any) -> Iterator[Any]:
        for launch in launches:
            if self._part is None and launch.config == self._tuned.config:
                raise FindingError("4,096 bytes are wrong")
            yield from super().run([launch])


def test_where_it_was_tuned_it_is_the_same(run_cli: RunCli, export: Path) -> None:
    found = run_cli("verify", str(export), "--device", f"replay:{SPACE}", "--format", "json")
    assert found.exit_code == 0
    keys = json.loads(found.stdout)
    assert (keys["verdict"], keys["differs"]) == ("same", [])
    assert keys["over_default"]["value"] == pytest.approx(keys["exported"], rel=0.01)


def test_the_default_that_it_was_found_beside_is_measured_whatever_todays_is(export: Path) -> None:
    tuned = read_measurable(export)
    other = tuned.config.model_copy(update={"tile_order": "sequential", "block_n": 64})
    found = verify(with_default(tuned, other), Machine(tuned, part=0.5))
    assert (found.default, found.over_default is not None) == (other.label, True)
    today = default_config(tuned.workload, load_platform("h200-host"))
    assert verify(with_default(tuned, None), Machine(tuned, part=0.5)).default == today.label


def with_default(tuned: TunedConfig, default: KernelConfig | None) -> TunedConfig:
    return tuned.model_copy(update={"objective": tuned.objective.model_copy(update={"default": default})})


@pytest.mark.parametrize(
    ("part_of_exported", "verdict"), [(1.0, "same"), (0.9, "better"), (1.1, "worse"), (2.0, "worse")]
)
def test_the_gain_over_the_default_is_what_is_compared(
    export: Path, part_of_exported: float, verdict: Verdict
) -> None:
    tuned = read_measurable(export)
    assert tuned.objective.default_ns
    part = part_of_exported * tuned.objective.ns / tuned.objective.default_ns
    found = verify(tuned, Machine(tuned, part))
    assert found.verdict == verdict
    assert found.over_default is not None
    assert found.over_default.value == pytest.approx(part, rel=0.005)


def test_a_config_that_does_not_run_any_more_is_worse(export: Path) -> None:
    tuned = read_measurable(export)
    found = verify(tuned, Machine(tuned, None))
    assert (found.verdict, found.fault, found.over_default) == ("worse", "incorrect", None)


def test_on_another_gpu_the_difference_is_named_and_slower_is_worse_all_the_same(export: Path) -> None:
    tuned = read_measurable(export)
    other = {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}
    found = verify(tuned, Machine(tuned, 0.6, **other))
    assert found.verdict == "not comparable"
    assert any("another GPU" in difference for difference in found.differs)
    assert verify(tuned, Machine(tuned, 1.2, **other)).verdict == "worse"


def test_worse_is_exit_code_1(run_cli: RunCli, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = read_measurable(export)
    monkeypatch.setattr("xstage_tune.devices.opener.open_measured_kernels", lambda *_: Machine(tuned, 1.3))
    shown = run_cli("verify", str(export))
    assert shown.exit_code == 1
    assert "slower than the default" in shown.stdout


@pytest.mark.parametrize(
    ("interval", "exported", "verdict"),
    [
        ((0.9, 0.95), None, "better"),
        ((0.99, 1.01), None, "same"),
        ((1.05, 1.06), None, "worse"),
        ((1.001, 1.004), None, "same"),
        ((0.7, 0.701), 0.7, "same"),
        ((0.68, 0.73), 0.7, "same"),
        ((0.72, 0.73), 0.7, "worse"),
        ((0.65, 0.66), 0.7, "better"),
    ],
)
def test_verdicts(interval: tuple[float, float], exported: float | None, verdict: Verdict) -> None:
    low, high = interval
    assert judge(Interval(low, (low + high) / 2, high), exported)[0] == verdict


def test_what_is_no_export_is_refused(tmp_path: Path, run_cli: RunCli, export: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(UsageError, match="no export"):
        read_measurable(other)
    assert run_cli("verify", str(other)).exit_code == 2
    assert run_cli("verify", str(export), "--device", "replay:h200-host-fa-4096x3").exit_code == 2


@pytest.mark.parametrize(("tokens", "heads"), [(4096, 24), (8192, 24), (8192, 32), (16384, 24)])
def test_every_recorded_space_is_whole(tokens: int, heads: int) -> None:
    """Of the workload that its name says, and as many configs as fit there."""
    layer = load_workload("fa-a2a/paper", [f"tokens={tokens}", f"heads={heads}"])
    with closing(ReplayedKernels(recording_file(f"h200-host-fa-{tokens}x{heads // 8}", "search"))) as device:
        device.require_workload(layer)
        assert device.configs == len(build_space(layer, load_platform("h200-host")).configs)
