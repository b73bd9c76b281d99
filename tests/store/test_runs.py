from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from tests.h200 import H200
from tests.store.bursts import assert_same_burst, make_burst, stored_burst
from xstage_tune import __version__
from xstage_tune.base.errors import FindingError, StoreError, UsageError
from xstage_tune.store.facade import Store


def begin(store: Store, kind: str = "calibrate"):
    return store.begin_run(kind=kind, argv=["calibrate", "--seed", "7"], device=H200, seed=7, path="host")


def test_a_run_comes_back_as_it_was_measured(store: Store) -> None:
    bursts = [make_burst(seed) for seed in range(3)]
    with begin(store) as run:
        for sequence, burst in enumerate(bursts):
            run.add_launch(sequence, burst)
    found = store.launches(run.id)
    assert [launch.sequence for launch in found] == [0, 1, 2]
    for launch, burst in zip(found, bursts, strict=True):
        assert_same_burst(stored_burst(launch), burst)


def test_a_run_keeps_its_provenance(store: Store) -> None:
    link: dict[str, str | int | float] = {"pcie_generation": 5, "pcie_width": 16}
    with store.begin_run(
        kind="calibrate",
        argv=["calibrate"],
        device=replace(H200, uuid="GPU-0000", driver="580.1", link=link),
        seed=7,
        parameters={"budget": "quick"},
        path="host",
        kernel_sha256="ab",
        profile_sha256="cd",
    ) as writer:
        assert store.run(writer.id).status == "running"
    run = store.run(writer.id)
    assert (run.status, run.error, run.seed, run.argv) == ("finished", None, 7, ["calibrate"])
    assert (run.parameters, run.path) == ({"budget": "quick"}, "host")
    assert (run.kernel_sha256, run.profile_sha256, run.tool_version) == ("ab", "cd", __version__)
    assert run.finished_at is not None
    assert run.started_at <= run.finished_at
    assert (run.environment.gpu_uuid, run.environment.driver) == ("GPU-0000", "580.1")
    assert run.environment.device["link"] == {"pcie_generation": 5, "pcie_width": 16}


def test_runs_on_one_device_share_their_environment(store: Store) -> None:
    for _ in range(2):
        with begin(store):
            pass
    first, second = store.runs()
    assert first.environment.id == second.environment.id


def test_a_run_id_tells_its_kind_and_time(store: Store) -> None:
    with begin(store) as run:
        pass
    assert re.fullmatch(r"cal-\d{8}-\d{6}-[0-9a-f]{6}", run.id)


def test_latest_is_the_run_finished_last(store: Store) -> None:
    with pytest.raises(UsageError, match="has no run"):
        store.run("latest")
    with begin(store) as unfinished:
        with pytest.raises(UsageError, match="no finished run") as refused:
            store.run("latest")
        assert f"the latest begun is {unfinished.id}, which is running" in refused.value.hint
        with begin(store, "search") as finished:
            pass
        assert store.run("latest").id == finished.id
        with begin(store, "search") as begun:
            assert store.run("latest").id == finished.id
            assert store.run("latest-any").id == begun.id
            assert store.run("latest-any", lambda run: run.kind == "calibrate").id == unfinished.id
    assert store.run("latest").id == unfinished.id


def test_latest_any_is_the_run_begun_last(store: Store) -> None:
    ids = []
    for kind in ("calibrate", "search", "calibrate"):
        with begin(store, kind) as run:
            ids.append(run.id)
    assert store.run().id == ids[-1]
    assert [run.id for run in store.runs()] == ids[::-1]
    assert [run.id for run in store.runs("search")] == [ids[1]]


def test_an_unknown_run_is_a_usage_error(store: Store) -> None:
    with pytest.raises(UsageError, match="no run 'cal-1'"):
        store.run("cal-1")


def test_ctrl_c_marks_the_run_interrupted_and_keeps_its_launches(store: Store) -> None:
    def measure_until_ctrl_c() -> None:
        with begin(store) as run:
            run.add_launch(0, make_burst())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_until_ctrl_c()
    assert store.run().status == "interrupted"
    assert len(store.launches(store.run().id)) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [(FindingError("knee not reached"), "knee not reached"), (ValueError("bad"), "ValueError: bad")],
)
def test_a_failed_run_keeps_its_message(store: Store, error: Exception, message: str) -> None:
    with pytest.raises(type(error)), begin(store) as run:
        raise error
    assert (store.run(run.id).status, store.run(run.id).error) == ("failed", message)


def test_every_rank_of_a_launch_keeps_its_own_spans(store: Store) -> None:
    first, second = make_burst(), make_burst(lanes=4, bursts=20)
    with begin(store) as run:
        run.add_launch(0, first, rank=0)
        run.add_launch(0, second, rank=1)
    (launch,) = store.launches(run.id)
    assert launch.table(0).spans.tobytes() == first.table.spans.tobytes()
    assert launch.table(1).spans.tobytes() == second.table.spans.tobytes()
    assert launch.ranks() == (0, 1)
    with pytest.raises(StoreError, match="rank 2 has no spans"):
        launch.table(2)


def test_a_launch_cannot_be_written_twice(store: Store) -> None:
    with begin(store) as run:
        run.add_launch(0, make_burst())
        with pytest.raises(StoreError, match="chunk"):
            run.add_launch(0, make_burst())
        with pytest.raises(StoreError, match="another point"):
            run.add_launch(0, make_burst(seed=1), rank=1)
    assert len(store.launches(run.id)) == 1


def test_a_fit_keeps_numbers_that_are_not_finite(store: Store) -> None:
    payload = {"rates": [math.inf, -math.inf, 52.6e9], "error": {"p95": math.nan}, "knee": None}
    with begin(store) as run:
        run.add_fit("platform", payload)
    (fit,) = store.fits(run.id)
    assert fit.kind == "platform"
    assert fit.payload["rates"] == payload["rates"]
    assert math.isnan(fit.payload["error"]["p95"])
    assert fit.payload["knee"] is None


@pytest.mark.parametrize(
    ("payload", "message"), [({"value": {1, 2}}, "a set cannot be stored"), ({"$float": "nan"}, "reserved")]
)
def test_a_payload_that_is_no_json_is_refused(store: Store, payload: dict[str, object], message: str) -> None:
    with begin(store) as run, pytest.raises(StoreError, match=message):
        run.add_fit("platform", payload)
    assert store.fits(run.id) == []


def test_a_store_can_be_read_again_after_it_was_closed(location: str) -> None:
    burst = make_burst()
    with Store.open(location) as store, begin(store) as run:
        run.add_launch(0, burst)
    with Store.open(location) as store:
        assert_same_burst(stored_burst(store.launches(run.id)[0]), burst)
