"""A store with a calibration and two searches, made once: most tests look at different sides of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.calibration.fluid import Fluid, FluidDevice
from tests.search.cases import SMALL_AXES
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.session import StoredCalibration, run_calibration
from xstage_tune.families.family import Axes
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import begin_study
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.space import build_space
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.store.facade import Store

#: Skewed, so that waves stall; small, so that a launch has a few thousand tiles.
MOE = ("megamoe/deepseek-v4-flash", ("tokens_per_rank=2048", "routing.kind=zipf", "routing.alpha=0.8"))
ATTENTION = ("fa-a2a/paper", ())
TRIALS = 8


class Silent:
    """Shows no progress."""

    def planned(self, total: int) -> None:
        pass

    def advance(self, label: str) -> None:
        pass


class Kept(NamedTuple):
    """The store's file, and what is in it."""

    file: Path
    calibration: StoredCalibration
    moe: str  # study ids
    attention: str


def search(store: Store, workload: tuple[str, tuple[str, ...]], axes: Axes | None = None) -> str:
    """Search a workload on the paper's platform with a few trials, by its own axes or others; its id."""
    platform = load_platform("paper-nvlink5")
    request = SearchRequest(workload=load_workload(*workload), platform=platform, trials=TRIALS)
    space = build_space(request.workload, platform, axes)
    device = SimulatedDevice(platform)
    journal = begin_study(store, request, space, device.identity)
    run_search(request, space, device, journal, Silent())
    return journal.study_id


@pytest.fixture(scope="package")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    file = tmp_path_factory.mktemp("report") / "store.db"
    with Store.open(file) as store:
        calibration = run_calibration(
            FluidDevice(Fluid()),
            CalibrationRequest(path="host", budget="quick"),
            store,
            argv=["xstage-tune", "calibrate"],
            progress=Silent(),
        )
        return Kept(file, calibration, search(store, MOE, SMALL_AXES), search(store, ATTENTION))


@pytest.fixture
def store(kept: Kept) -> Iterator[Store]:
    with Store.open(kept.file) as opened:
        yield opened
