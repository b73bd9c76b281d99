"""``xstage-tune search``."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.configs.cases import BLACKWELL
from tests.conftest import RunCli, without_choice
from tests.processes import WarmProcess, start, wait_for_trials
from tests.search.cases import CountingSimulator, FaultyDevice, drained
from xstage_tune.devices import opener
from xstage_tune.families.binding import default_config
from xstage_tune.platforms.loader import save_platform
from xstage_tune.search import suite
from xstage_tune.search.suite import SuiteResult
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.store.facade import Store

SMALL = ("--set", "tokens_per_rank=512")
FLASH = "megamoe/deepseek-v4-flash"
ATTENTION = "fa-a2a/paper"


@pytest.fixture
def layer(tmp_path: Path) -> str:
    """A small layer as a profile of the user's."""
    file = tmp_path / "layer.toml"
    file.write_text(tomli_w.dumps(drained().model_dump(exclude_none=True)))
    return str(file)


@pytest.mark.usefixtures("few_configs")
def test_json_has_the_documented_keys(run_cli: RunCli, layer: str) -> None:
    result = run_cli("search", "--workload", layer, "--trials", "6", "--format", "json")
    assert (result.exit_code, without_choice(result.stderr)) == (0, "")
    found = json.loads(result.stdout)
    assert found["study_id"].startswith("stu-")
    assert found["best"]["config"]["kind"] == "megamoe"
    assert 0 < found["bound_ns"] <= found["best"]["objective_ns"] <= found["default"]["objective_ns"]
    assert found["evaluations"] == 6
    assert found["device"] == "simulator"
    assert {"bounded", "infeasible: shared memory"} <= set(found["cuts"])
    assert all(count > 0 for count in found["cuts"].values())


@pytest.mark.usefixtures("few_configs")
def test_a_default_that_fails_is_a_warning_and_failures_are_listed(
    run_cli: RunCli, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = default_config(drained(), BLACKWELL)
    device = FaultyDevice(lambda config, _: RuntimeError("compiler crashed") if config == default else None)
    monkeypatch.setattr(opener, "open_kernels", lambda *_, **__: device)
    arguments = ("search", "--workload", layer, "--trials", "6")
    shown = run_cli(*arguments)
    assert shown.exit_code == 1  # a fault ruled a config out
    assert "warning: the default (" in shown.stderr
    assert "compiler crashed" in shown.stdout
    found = json.loads(run_cli(*arguments, "--format", "json").stdout)
    assert found["default"] is None
    assert found["no_default"] in found["warnings"][0]
    (group,) = found["failures"]
    assert (group["configs"], group["example"]) == (1, default.label)


@pytest.mark.usefixtures("few_configs")
@pytest.mark.parametrize("format", ["json", "toml", "header", "kernel-tuner", "t4"])
def test_an_answer_without_a_default_is_reported_and_exported(
    run_cli: RunCli, layer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format: str
) -> None:
    default = default_config(drained(), BLACKWELL)
    simulator = SimulatedKernels(BLACKWELL)
    device = FaultyDevice(lambda config, _: math.nan if config == default else None, simulator)
    monkeypatch.setattr(opener, "open_kernels", lambda *_, **__: device)
    assert run_cli("search", "--workload", layer, "--trials", "5", "--objective", "stall").exit_code == 1
    suffix = {"toml": "toml", "header": "h"}.get(format, "json")
    file = tmp_path / f"tuned.{suffix}"
    assert run_cli("export", "--study", "latest", "--format", format, "-o", str(file)).exit_code == 0
    if format == "json":
        objective = json.loads(file.read_text())["objective"]
        assert "default_ns" not in objective
        assert objective["latency_ns"] > objective["ns"]
        page = tmp_path / "study.html"
        assert run_cli("report", "--study", "latest", "-o", str(page)).exit_code == 0
        assert "the best heuristic" in page.read_text()


@pytest.mark.usefixtures("few_configs")
def test_the_same_seed_prints_the_same_bytes(run_cli: RunCli, layer: str) -> None:
    arguments = ("search", "--workload", layer, "--trials", "15", "--seed", "3", "--format", "json")
    first, second = (json.loads(run_cli(*arguments).stdout) for _ in range(2))
    assert first.pop("study_id") != second.pop("study_id")
    assert first == second


def test_the_table_shows_the_bound_the_cuts_and_the_baselines(run_cli: RunCli) -> None:
    result = run_cli("search", "--workload", ATTENTION, "--trials", "8")
    assert result.exit_code == 0
    text = result.stdout
    assert "best, tuned" in text
    assert "fa3-tile" in text
    assert "no config that was left out is faster; the best is within " in text
    assert "8 configs evaluated; stopped: 8 trials" in text
    assert "infeasible: shared memory" in text


def test_an_answer_whose_tile_nobody_measured_says_so(run_cli: RunCli) -> None:
    """An H200's profile has the time of every tile that is built, the paper's B300 that of one."""
    arguments = ("search", "--workload", ATTENTION, "--trials", "8")
    found = json.loads(run_cli(*arguments, "--format", "json").stdout)
    config = found["best"]["config"]
    assert f"{config['block_m']}x{config['block_n']} tile" in found["assumed"]
    table = run_cli(*arguments).stdout
    assert f"assumed, not measured: {found['assumed']}" in " ".join(table.split())
    measured = run_cli(*arguments, "--platform", "h200-host", "--format", "json").stdout
    assert json.loads(measured)["assumed"] is None


@pytest.mark.usefixtures("few_configs")
def test_the_stall_objective_and_overrides_are_taken(run_cli: RunCli, layer: str, own_store: Path) -> None:
    arguments = ("search", "--workload", layer, "--set", "tokens_per_rank=900", "--objective", "stall")
    found = json.loads(run_cli(*arguments, "--trials", "4", "--format", "json").stdout)
    assert found["objective"] == "stall"
    assert found["bound_ns"] == 0
    with Store.open(own_store) as store:
        assert store.studies.get().space["workload"]["tokens_per_rank"] == 900


@pytest.mark.usefixtures("few_configs")
def test_an_interrupt_says_how_to_resume(
    run_cli: RunCli, layer: str, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    monkeypatch.setattr(opener, "open_simulator", lambda _: CountingSimulator(interrupt_after=5))
    stopped = run_cli("search", "--workload", layer, "--trials", "9")
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    assert "search interrupted; 5 trials are kept" in stopped.stderr
    with Store.open(own_store) as store:
        study_id = store.studies.get().id
    assert f"--resume {study_id}" in stopped.stderr

    simulator = CountingSimulator()
    monkeypatch.setattr(opener, "open_simulator", lambda _: simulator)
    resumed = run_cli(
        "search", "--workload", layer, "--trials", "9", "--resume", "latest", "--format", "json"
    )
    assert resumed.exit_code == 0
    assert len(simulator.asked) == 4
    assert json.loads(resumed.stdout)["study_id"] == study_id


@pytest.mark.usefixtures("few_configs")
def test_resuming_takes_the_options_of_the_study(run_cli: RunCli, layer: str, own_store: Path) -> None:
    own = ("--seed", "3", "--sampler", "random", "--objective", "stall", "--tolerance", "0.2", *SMALL)
    begun = run_cli("search", "--workload", layer, *own, "--trials", "5", "--format", "json")
    resumed = run_cli("search", "--resume", "latest", "--format", "json")
    assert (resumed.exit_code, resumed.stderr) == (0, "")
    assert json.loads(resumed.stdout) == json.loads(begun.stdout)  # five trials, and not a sixth
    further = run_cli("search", "--resume", "latest", "--trials", "8", "--format", "json")
    first, second = (json.loads(result.stdout) for result in (begun, further))
    for key in ("study_id", "workload", "platform", "objective", "sampler", "seed"):
        assert second[key] == first[key]
    with Store.open(own_store) as store:
        assert [study.id for study in store.studies.all()] == [first["study_id"]]
    refused = run_cli("search", "--resume", "latest", "--seed", "4", "--platform", "h200-host")
    assert refused.exit_code == 2
    assert "is another search: platform paper-nvlink5, not h200-host; " in refused.stderr
    assert "seed 3, not 4" in refused.stderr


@pytest.mark.usefixtures("few_configs")
def test_another_workloads_study_is_refused(run_cli: RunCli, layer: str) -> None:
    assert run_cli("search", "--workload", layer, "--trials", "3").exit_code == 0
    result = run_cli("search", "--workload", FLASH, "--trials", "3", "--resume", "latest")
    assert result.exit_code == 2
    assert f"workload test/moe, not {FLASH}; the workload's keys have changed" in result.stderr


def once(run: Callable[..., SuiteResult]) -> Callable[..., SuiteResult]:
    """``run`` that runs the first time, and gives the same result from then on."""
    kept: list[SuiteResult] = []

    def result(*arguments: object) -> SuiteResult:
        if not kept:
            kept.append(run(*arguments))
        return kept[0]

    return result


@pytest.mark.usefixtures("few_configs")
def test_a_suite_prints_rows_and_a_summary(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in suite.paper_84_workloads() if case[0] == "Qwen3.5"]
    monkeypatch.setattr(suite, "paper_84_workloads", lambda: islice(iter(cases), 1))
    monkeypatch.setattr(suite, "run_paper_84", once(suite.run_paper_84))
    arguments = ("search", "--suite", "paper-84", "--trials", "4")
    found = json.loads(run_cli(*arguments, "--format", "json").stdout)
    assert found["rows"][0]["model"] == "Qwen3.5"
    assert found["summary"]["tuned_over_wave"]["geomean"] >= 1.0
    table = run_cli(*arguments).stdout
    assert "tuned over today's heuristics" in table
    assert "geomean 1.18x" in table


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        ((), 2, "give either --workload or --suite"),
        (("--workload", FLASH, "--suite", "paper-84"), 2, "give either --workload or --suite"),
        (("--suite", "paper-84", *SMALL), 2, "takes no --set"),
        (("--suite", "paper-84", "--objective", "stall"), 2, "takes no --set"),
        (("--suite", "paper-84", "--resume", "latest"), 2, "takes no --set"),
        (("--resume", "latest", *SMALL), 2, "and no --set"),
        (("--workload", FLASH, "--retry-failed"), 2, "--retry-failed is of a study that is taken up again"),
        (("--resume", "latest"), 4, "no store at"),
        (("--workload", FLASH, "--tolerance", "inf"), 2, "--tolerance: should be"),
        (("--workload", FLASH, "--tolerance", "nan"), 2, "--tolerance: should be"),
        (("--workload", FLASH, "--timeout", "inf"), 2, "--timeout: should be"),
        (("--workload", FLASH, "--trials", "99999999999"), 2, "--trials: should be"),
        (
            ("--workload", ATTENTION, "--platform", "h200-host", "--set", "head_dim=96"),
            2,
            f"no config of '{ATTENTION}' can run on 'h200-host': head_dim = 96: the kernel of sm_90 is built "
            "for 64, 128",
        ),
        (("--workload", "megamoe/deepseek-v4-flas"), 2, f"{FLASH} or "),
        (("--workload", FLASH, "--platform", "h100"), 2, "unknown platform 'h100'"),
        (("--workload", FLASH, "--device", "tpu"), 2, "--device 'tpu' is unknown"),
        (
            ("--workload", FLASH, "--device", "cuda:1", "--set", "precision=w4a8"),
            3,
            "no fused kernel for 'megamoe/deepseek-v4-flash' yet",
        ),
        (("--workload", FLASH, "--set", "tokens_per_rank=0"), 2, "tokens_per_rank = 0"),
        (("--workload", FLASH, "--set", "tokens_per_rank=99999999"), 2, "more than the 20,000,000 that a"),
        (("--workload", ATTENTION, "--set", "tokens=2000000000"), 2, "more than the 20,000,000 that a"),
        (("--workload", FLASH, "--set", "experts=250"), 2, "experts = 250 is not divisible by ep_degree = 8"),
        (("--workload", FLASH, "--set", "remote_fraction=nan"), 2, "remote_fraction = nan"),
        (("--workload", FLASH, "--set", "hidden=4161"), 2, "hidden = 4161: a row of w8a8 weights"),
        (("--workload", ATTENTION, "--set", "heads=30"), 2, "heads = 30 is not divisible by degree = 8"),
        (("--workload", ATTENTION, "--resume", "stu-1"), 4, "no store at"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code(
    run_cli: RunCli, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    result = run_cli("search", *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": (), "capacity_law": ()}, "has no outstanding capacity Q for store flavour 'st.v4'"),
        ({"compute": None}, "has no compute section"),
    ],
)
def test_a_platform_that_lacks_figures_is_refused(
    run_cli: RunCli, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = tmp_path / "partial.toml"
    save_platform(BLACKWELL.model_copy(update={"name": "partial"} | changes), file)
    result = run_cli("search", "--workload", FLASH, *SMALL, "--platform", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.usefixtures("few_configs")
def test_the_gp_sampler_says_what_it_needs_and_leaves_no_study(
    run_cli: RunCli, layer: str, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run_cli("search", "--workload", layer, "--trials", "3").exit_code == 0
    with Store.open(own_store) as store:
        finished = store.studies.get().id
    result = run_cli("search", "--workload", layer, "--sampler", "gp")
    assert result.exit_code == 3
    assert "--sampler gp needs torch" in result.stderr
    with Store.open(own_store) as store:
        assert store.studies.get().id == finished  # the latest


def slow_search(store: Path, *arguments: str, slow_s: float = 0.05) -> WarmProcess:
    """A search whose trials take their time."""
    asked = ("search", "--workload", ATTENTION, "--tolerance", "0", "--store", str(store), *arguments)
    return start(store.parent, "tests.search.slow_command", str(slow_s), *asked)


def test_a_second_resume_of_a_study_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    first = slow_search(store, "--trials", "60", "--format", "json")  # until the second has come and gone
    wait_for_trials(store, 1)
    second = slow_search(store, "--resume", "latest", "--format", "json")
    output, refusal = second.communicate(30)
    assert (second.returncode, output) == (4, "")
    assert f"is being searched by process {first.pid} on " in refusal
    assert refusal.count("\n") == 2
    assert first.returncode is None
    result, errors = first.communicate(120)
    assert (first.returncode, without_choice(errors)) == (0, "")
    assert json.loads(result)["evaluations"] == 60


def test_sigterm_ends_a_search_as_ctrl_c_does(tmp_path: Path) -> None:
    """timeout(1) sends it to the process and to its group, so it comes twice."""
    store = tmp_path / "store.db"
    stopped = slow_search(store)
    wait_for_trials(store, 3)
    stopped.send_signal(signal.SIGTERM)
    stopped.send_signal(signal.SIGTERM)
    stdout, stderr = stopped.communicate(30)
    assert (stopped.returncode, stdout) == (143, "")
    with Store.open(store) as opened:
        study = opened.studies.get()
        assert study.status == "interrupted"
        kept = sum(trial.state == "complete" for trial in opened.studies.trials(study.id))
    assert f"search interrupted; {kept} trials are kept" in stderr
    assert f"--resume {study.id}" in stderr
    assert without_choice(stderr).count("\n") == 2


def test_a_study_whose_search_was_killed_says_so_and_is_resumed(run_cli: RunCli, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    killed = slow_search(store)
    wait_for_trials(store, 3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(30)
    told = run_cli("export", "-o", str(tmp_path / "tuned.json"), "--store", str(store))
    assert (told.exit_code, told.stdout) == (2, "")
    assert ": the process that searched it ended without finishing it" in told.stderr
    assert "xstage-tune search --resume stu-" in told.stderr
    resumed = slow_search(store, "--trials", "6", "--resume", "latest", "--format", "json", slow_s=0)
    result, errors = resumed.communicate(120)
    assert (resumed.returncode, errors) == (0, "")
    assert json.loads(result)["evaluations"] >= 6
