"""Whatever a device runs is in the store, and in the recording, before anyone sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.h200 import H200
from tests.profiling.gpu import ScriptedProfiles
from tests.profiling.test_recording import LAUNCHES
from tests.store.bursts import make_burst
from tests.store.skeletons import skeleton_run
from xstage_tune.base.errors import DeviceError, RunInterrupted, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.launches.bursts import CopyProbe, CopyRate
from xstage_tune.launches.device import DeviceDescription, Outcome
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import DEVICE_KEY, KeptDevice, kept_launches

REQUEST = CalibrationRequest(path="host", budget="quick", seed=4)
COPIED = Outcome(
    CopyProbe("host"), CopyRate("host", 1 << 20, (5e10, 5.1e10)), replace(make_burst().info, before=None)
)
ATTENTIONS = list(ScriptedProfiles(throttled=True).run(LAUNCHES))
#: One of every kind that is kept, and more.
OUTCOMES: list[Outcome[Any, Any]] = [COPIED, make_burst(1), skeleton_run(), make_burst(2), *ATTENTIONS]


class Scripted:
    """Gives outcomes in turn, whatever is asked.

    Args:
        after, happening: what happens before which launch.
    """

    identity = "a scripted device"
    kinds = ("bursts", "copy-rate", "skeletons", "attentions")

    def __init__(self, after: int = -1, happening: Callable[[], None] = lambda: None) -> None:
        self._after, self._happening = after, happening
        self.labels: list[str] = []

    def describe(self) -> DeviceDescription:
        return H200

    def label_launches(self, run_id: str) -> None:
        self.labels.append(run_id)

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        for number, launch in enumerate(launches):
            if number == self._after:
                self._happening()
            yield next(one for one in OUTCOMES if one.launch is launch)

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


def run_all(
    store: Store,
    device: Scripted,
    record: Path | None = None,
    seen: Callable[[KeptDevice], None] = lambda _: None,
) -> KeptDevice:
    begun = kept_launches(
        device, REQUEST, store, "calibrate", argv=["a"], progress=NoProgress(), record=record, force=False
    )
    with begun as kept:
        for _ in kept.run([one.launch for one in OUTCOMES]):
            seen(kept)
    return kept


def test_a_launch_is_kept_before_its_outcome_is_seen(store: Store) -> None:
    """Copy rates, which are no launches of a kernel, as a conclusion of the run."""
    counts: list[int] = []

    def seen(kept: KeptDevice) -> None:
        counts.append(len(store.launches(kept.run_id)) + len(store.fits(kept.run_id)))

    kept = run_all(store, Scripted(), seen=seen)
    assert counts == list(range(1, len(OUTCOMES) + 1))
    (fit,) = store.fits(kept.run_id)
    assert (fit.kind, fit.payload["samples_bytes_per_s"]) == ("copy-rate", [5e10, 5.1e10])
    run = store.run()
    assert (run.kind, run.seed, run.path, run.parameters[DEVICE_KEY]) == (
        *("calibrate", 4, "host", "a scripted device"),
    )


def test_rows_of_every_kind_give_point_figures_and_spans_back(store: Store) -> None:
    kept = run_all(store, Scripted())
    assert kept.throttled == len(OUTCOMES) - 1  # all but the copies
    rows = store.launches(kept.run_id)
    for row, outcome in zip(rows, (one for one in OUTCOMES if one is not COPIED), strict=True):
        kind = outcome.launch.kind
        assert row.is_of(kind)
        assert row.point_as(kind) == kind.point(outcome)
        assert row.figures_as(kind) == outcome.figures
        assert (row.info, row.verification) == (outcome.info, outcome.verification)
        assert row.table().spans.tobytes() == outcome.table.spans.tobytes()
        assert row.measured == (asdict(outcome.figures) if outcome.figures else None)


def test_one_recording_holds_all_kinds(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "run.xsrec"
    run_all(store, Scripted(), record=file)
    device = ReplayedDevice(file, "calibrate")
    for replayed, outcome in zip(device.run([one.launch for one in OUTCOMES]), OUTCOMES, strict=True):
        assert (replayed.figures, replayed.info) == (outcome.figures, outcome.info)
        assert replayed.table.spans.tobytes() == outcome.table.spans.tobytes()
        assert replayed.arrays.keys() == outcome.arrays.keys()
    assert set(device.kinds) == {"copy-rate", "bursts", "skeletons", "attentions"}


def test_launches_are_labelled_once_by_their_run(store: Store) -> None:
    device = Scripted()
    kept = run_all(store, device)
    assert device.labels == [kept.run_id]


@pytest.mark.parametrize("error", [DeviceError("it fell off"), KeyboardInterrupt()])
def test_what_was_made_before_an_error_stays_and_no_recording_is_left(
    store: Store, tmp_path: Path, error: BaseException
) -> None:
    def happening() -> None:
        raise error

    file = tmp_path / "run.xsrec"
    raised = RunInterrupted if isinstance(error, KeyboardInterrupt) else DeviceError
    with pytest.raises(raised):
        run_all(store, Scripted(3, happening), record=file)
    assert len(store.launches(store.run().id)) == 2
    assert store.run().status == ("interrupted" if raised is RunInterrupted else "failed")
    assert not file.exists()


def test_a_row_of_another_version_is_one_error_that_names_it(store: Store) -> None:
    kept = run_all(store, Scripted())
    row = next(row for row in store.launches(kept.run_id) if row.mode == "profile")
    kind = ATTENTIONS[0].launch.kind
    with pytest.raises(UsageError, match="launch 3: its figures are of another version"):
        replace(row, measured={"what": "check"}).figures_as(kind)
    with pytest.raises(UsageError, match="launch 3: its keys are of another version"):
        replace(row, point={}).point_as(kind)
