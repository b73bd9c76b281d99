"""A space on record answers any search as the GPU did, at the clocks of the whole recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.h200 import H200
from tests.search.cases import request, small_space
from tests.search.test_measured import OTHERS, InTurn, by_place
from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.devices.recorded_kernels import KernelRecorder, RecordedFault, ReplayedKernels
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.launches.recording import new_recording
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.result import SearchResult

SPACE = small_space()
WINNER, WRONG = OTHERS[40], OTHERS[41]
ASKED = request(sampler="exhaustive", trials=None)


class Gpu(InTurn):
    """Its clocks fall all the time; one config is wrong."""

    def describe(self) -> Any:
        return H200

    def run(self, launches: Any) -> Iterator[Any]:
        for launch in launches:
            if launch.config == WRONG:
                raise FindingError("4,096 bytes are wrong")
            yield from super().run([launch])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchResult]:
    file = tmp_path_factory.mktemp("recorded") / "space.xstune"
    device = Gpu(lambda config: 0.9e9 if config == WINNER else by_place(config))
    workload = {"workload": ASKED.workload.model_dump(mode="json", exclude_none=True)}
    with new_recording(file, "search", H200, device.identity, workload) as recording:
        measured = run_search(ASKED, SPACE, KernelRecorder(device, recording), NoJournal(), NoProgress())
    return file, measured


def test_a_search_of_the_recording_finds_what_the_gpu_had(recorded: tuple[Path, SearchResult]) -> None:
    file, measured = recorded
    with closing(ReplayedKernels(file)) as device:
        device.require_workload(ASKED.workload)
        first = run_search(ASKED, SPACE, device, NoJournal(), NoProgress())
        again = run_search(ASKED, SPACE, device, NoJournal(), NoProgress())
    assert first == again
    assert first.best.config == measured.best.config == WINNER
    assert first.device == "in turn, replayed"
    assert [(group.fault, group.reason) for group in first.failures] == [
        ("incorrect", "4,096 bytes are wrong")
    ]
    assert first.default is not None
    gain = first.default.objective_ns / first.best.objective_ns
    assert gain == pytest.approx(by_place(first.default.config) / 0.9e9, rel=3e-3)


def test_it_answers_in_any_order_and_whatever_a_launch_is_timed_against(
    recorded: tuple[Path, SearchResult],
) -> None:
    with closing(ReplayedKernels(recorded[0])) as device:
        for own, other in ((OTHERS[7], OTHERS[3]), (WINNER, OTHERS[90]), (OTHERS[3], OTHERS[7])):
            launch = KernelLaunch(ASKED.workload, own, "peer", against=other)
            (outcome,) = device.run([launch])
            ratio = outcome.figures.ratio
            assert ratio is not None
            times = [0.9e9 if config == WINNER else by_place(config) for config in (own, other)]
            assert ratio.value == pytest.approx(times[0] / times[1], rel=3e-3)


def test_another_workload_is_refused_with_what_is_recorded(recorded: tuple[Path, SearchResult]) -> None:
    other = ASKED.workload.model_copy(update={"tokens_per_rank": 512})
    with closing(ReplayedKernels(recorded[0])) as device:
        with pytest.raises(UsageError, match="tokens_per_rank = 1024"):
            device.require_workload(other)
        with pytest.raises(RecordedFault, match="was not measured"):
            list(device.run([KernelLaunch(other, WINNER, "peer")]))
