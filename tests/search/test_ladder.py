"""One layer at several sizes: a study each, one bundle, whatever becomes of one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import RunCli
from tests.search.cases import FaultyDevice
from xstage_tune.base.errors import UsageError
from xstage_tune.devices import opener
from xstage_tune.search.ladder import ladder_of, settings_of
from xstage_tune.store.facade import Store

LAYER = ("search", "--workload", "fa-a2a/flux.1-1024px", "--platform", "h200-host", "--trials", "2")


@pytest.mark.parametrize(
    ("overrides", "tokens", "steps"),
    [
        ((), None, [()]),
        (("heads=24",), None, [("heads=24",)]),
        ((), "1,8", [("tokens=1",), ("tokens=8",)]),
        (("heads=16,24",), "64", [("heads=16", "tokens=64"), ("heads=24", "tokens=64")]),
        (("source=a, b",), None, [("source=a, b",)]),
    ],
)
def test_lists_of_numbers_are_steps(
    overrides: tuple[str, ...], tokens: str | None, steps: list[tuple[str, ...]]
) -> None:
    assert ladder_of(overrides, tokens) == steps


def test_what_differs_names_a_step() -> None:
    steps = ladder_of(("heads=16,24", "head_dim=128"), "64,128")
    assert list(settings_of(steps))[:2] == ["heads=16, tokens=64", "heads=16, tokens=128"]


@pytest.mark.parametrize("tokens", ["8,8", "64,abc", ",".join(map(str, range(1, 300)))])
def test_a_list_that_is_a_slip_is_refused(tokens: str) -> None:
    with pytest.raises(UsageError):
        ladder_of((), tokens)


def test_one_command_gives_a_study_for_each_size_and_one_bundle(run_cli: RunCli, tmp_path: Path) -> None:
    found = run_cli(*LAYER, "--tokens", "2048,4096", "--format", "json")
    assert found.exit_code == 0, found.stderr
    keys = json.loads(found.stdout)
    assert [step["set"] for step in keys["steps"]] == ["tokens=2048", "tokens=4096"]
    assert len({step["result"]["study_id"] for step in keys["steps"]}) == 2
    bundle = tmp_path / "tuned"
    assert run_cli("export", "--suite", keys["suite_id"], "-o", str(bundle)).exit_code == 0
    tokens = {json.loads(file.read_text())["workload"]["tokens"] for file in bundle.glob("*.json")}
    assert tokens == {2048, 4096}
    shown = run_cli(*LAYER, "--set", "tokens=2048,4096")
    assert "tokens=4096" in shown.stdout


def test_a_size_of_which_nothing_runs_ends_no_other(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FaultyDevice(lambda *_: None)
    run = device.run_kernel

    def one_fails(workload: object, config: object, repeats: int) -> object:
        if workload.token_count == 2048:  # type: ignore[attr-defined]
            raise RuntimeError("no kernel image")
        return run(workload, config, repeats)  # type: ignore[arg-type]

    monkeypatch.setattr(device, "run_kernel", one_fails)
    monkeypatch.setattr(opener, "open_kernels", lambda *_, **__: device)
    found = run_cli(*LAYER, "--tokens", "2048,4096", "--format", "json")
    assert found.exit_code == 1
    first, second = json.loads(found.stdout)["steps"]
    assert "no kernel image" in first["failed"]
    assert second["result"]["evaluations"] == 2


@pytest.mark.parametrize(
    "arguments", [("--resume", "latest"), ("--record", "a.xstune"), ("--device", "replay")]
)
def test_what_is_of_one_size_is_refused_with_several(run_cli: RunCli, arguments: tuple[str, ...]) -> None:
    assert run_cli(*LAYER, "--tokens", "2048,4096", *arguments).exit_code == 2


def test_no_study_is_begun_for_a_ladder_with_a_size_that_cannot_run(run_cli: RunCli, own_store: Path) -> None:
    assert run_cli(*LAYER, "--tokens", "2048,0").exit_code == 2
    with Store.open(own_store) as store, pytest.raises(UsageError):
        store.studies.get("latest-any")
