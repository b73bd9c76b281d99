"""A search of an own space: bounded and ranked where it tells its bursts, resumed, exported, looked up."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import xstage_tune
from tests.conftest import RunCli
from tests.own_kernel import modelled
from tests.own_kernel.cases import HERE, space_file
from xstage_tune.store.facade import Store

MANY = {"size": 3, "a": 0, "b": 0}
AXES = {
    "burst_bytes": [1024 * 2**power for power in range(6)],
    "producers": [1, 2, 4, 8, 16, 33, 66, 132],
    "pad": [0, 1],
}


@pytest.fixture
def modelled_space(own_store: Path, tmp_path: Path) -> Path:
    del own_store
    default = {"burst_bytes": 1024, "producers": 132, "pad": 0}
    functions = {"function": "modelled:measure", "bursts": "modelled:bursts", "folder": str(HERE)}
    return space_file(tmp_path, command=[], axes=AXES, default=default, tokens=4096, **functions)


def test_bounds_and_ranking_find_the_best_of_all_with_a_part_of_them(
    run_cli: RunCli, modelled_space: Path
) -> None:
    result = run_cli("search", "--space", str(modelled_space), "-p", "h200-host", "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    every = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]
    best_ns = min(modelled.time_ns(config, 4096) for config in every)
    assert found["best"]["objective_ns"] == pytest.approx(best_ns, rel=0.01)
    assert found["bound_ns"] <= best_ns
    assert found["below_bound"] == 0
    assert found["evaluations"] + sum(found["cuts"].values()) == len(every)
    assert found["cuts"]["bounded"] > found["evaluations"]


def test_a_folder_is_no_space_and_the_file_in_it_is_named(run_cli: RunCli, tmp_path: Path) -> None:
    result = run_cli("search", "--space", str(tmp_path), "-p", "h200-host")
    assert result.exit_code == 2
    assert str(tmp_path / "space.toml") in result.stderr


def test_each_size_of_a_ladder_is_measured_at_that_size(run_cli: RunCli, modelled_space: Path) -> None:
    options = ("--space", str(modelled_space), "-p", "h200-host", "--trials", "12", "--format", "json")
    result = run_cli("search", *options, "--tokens", "4096,8192")
    assert result.exit_code == 0, result.stderr
    ladder = [step["result"] for step in json.loads(result.stdout)["steps"]]
    for tokens, found in zip((4096, 8192), ladder, strict=True):
        config = {axis: found["best"]["config"]["values"][axis] for axis in AXES}
        assert found["best"]["objective_ns"] == pytest.approx(modelled.time_ns(config, tokens))
        assert found["below_bound"] == 0


def test_its_bursts_are_audited(run_cli: RunCli, modelled_space: Path) -> None:
    result = run_cli("audit", "-w", str(modelled_space), "-p", "h200-host", "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["burst_bytes"], found["producers"], found["gap_ns"]) == (1024, 132, 100)
    assert found["verdict"] == "reshape"


def test_a_function_that_tells_no_bursts_is_one_clear_line(run_cli: RunCli, modelled_space: Path) -> None:
    options = ("--space", str(modelled_space), "-p", "h200-host", "--set", "bursts=modelled:broken")
    result = run_cli("search", *options)
    assert (result.exit_code, result.stderr.count("error:")) == (1, 1)
    assert "burst_byte" in result.stderr


def test_what_init_space_writes_is_searched_resumed_and_deployed(
    run_cli: RunCli, own_store: Path, tmp_path: Path
) -> None:
    folder, exported = tmp_path / "mine", tmp_path / "tuned" / "mine.json"
    assert run_cli("init-space", str(folder)).exit_code == 0
    space = ("--space", str(folder / "space.toml"), "--set", "tokens=64", "-p", "h200-host")
    found = run_cli("search", *space, "--trials", "3", "--format", "json")
    assert found.exit_code == 0, found.stderr
    assert set(json.loads(found.stdout)["heuristics"]) == {"numpy"}
    again = run_cli("search", "--resume", "latest-any", "--trials", "4", "--format", "json")
    assert json.loads(again.stdout)["evaluations"] == 4
    with Store.open(str(own_store)) as store:
        trials = store.studies.trials(store.studies.get("latest").id)
    first = next(trial for trial in trials if trial.measured)
    assert first.measured is not None
    assert first.measured["run"]["counters"]["largest_error"] < 0.01
    for command in (
        ("export", "--study", "latest", "-o", str(exported)),
        ("report", "--study", "latest", "-o", str(tmp_path / "study.html")),
    ):
        made = run_cli(*command)
        assert made.exit_code == 0, made.stderr
    answer = json.loads(exported.read_text())["config"]
    bundle = xstage_tune.load_bundle(exported)
    looked_up = {tokens: xstage_tune.lookup(bundle, "own/mine", tokens=tokens) for tokens in (64, 70, 4096)}
    assert [one.match for one in looked_up.values()] == ["exact", "nearest", "default"]
    assert looked_up[64].config.model_dump(mode="json")["values"] == answer["values"]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"function": "a:b"}, "function = 'a:b'"),
        ({"default": {}}, "default.size"),
        ({"default": {"size": 9}}, "default.size = 9"),
        ({"axes": {"size": [1, 1, 3]}}, "axes.size"),
        ({"axes": {"size": [1, "a", 3]}}, "axes.size"),
        ({"axes": {"size": [3], "a": list(range(448)), "b": list(range(448))}, "default": MANY}, "axes"),
        ({"constraints": ["size <"]}, "'size <'"),
        ({"constraints": ["width > 1"]}, "'width'"),
        ({"constraints": ["size.__class__ == 1"]}, "size.__class__"),
        ({"constraints": ["__import__('os') == 1"]}, "__import__"),
        ({"constraints": ["size ** 9 ** 9 > 1"]}, "size = 1"),
        ({"constraints": ["size > 4"]}, "size > 4"),
        ({"command": ["no-such-program"]}, "no-such-program"),
    ],
)
def test_a_space_that_is_none_is_one_clear_line(
    run_cli: RunCli, own_store: Path, tmp_path: Path, keys: dict[str, object], named: str
) -> None:
    del own_store
    result = run_cli("search", "--space", str(space_file(tmp_path, **keys)), "-p", "h200-host")
    assert (result.exit_code, result.stderr.count("error:")) in ((2, 1), (3, 1)), result.stderr
    assert named in result.stderr
