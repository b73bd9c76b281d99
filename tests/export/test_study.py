"""``xstage-tune export``: from a study in the store to a file."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import xstage_tune
from tests.conftest import RunCli
from tests.export.cases import FLASH, WAN
from xstage_tune.devices.kernel_identity import kernel_sha256
from xstage_tune.families.binding import default_config
from xstage_tune.families.kernel_launch import EMULATION_ON
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform, save_platform
from xstage_tune.search.journal import StoreJournal, begin_study
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import Outcome, SearchResult
from xstage_tune.search.space import Space, build_space
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study

SEARCHED_BY = xstage_tune.__version__
LAYER = load_workload(FLASH, ["tokens_per_rank=4096"])
PLATFORM = load_platform("paper-nvlink5")
REQUEST = SearchRequest(workload=LAYER, platform=PLATFORM, seed=3)
DEFAULT = default_config(LAYER, PLATFORM)


def small_space() -> Space:
    """The default's tile under a wave and under four leads."""
    axes = {name: (value,) for name, value in DEFAULT.model_dump(exclude={"kind", "schedule"}).items()}
    schedules = {"schedule": ("wave", "interleaved"), "experts_per_wave": (2,), "lead_rows": (2, 4, 6, 8)}
    return build_space(LAYER, PLATFORM, {**axes, **schedules})


SPACE = small_space()
WAVE, LEAD_2, LEAD_4, LEAD_6, LEAD_8 = SPACE.configs


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XSTAGE_STORE", str(tmp_path / "store.db"))


@pytest.fixture
def store(own_data: None) -> Iterator[Store]:  # noqa: ARG001 - the store must be the test's own
    with Store.open() as opened:
        yield opened


def result(study_id: str, device: str, best_ns: float = 1.2e6) -> SearchResult:
    default = Outcome(WAVE, (1.5e6, 1.51e6, 1.52e6))
    best = Outcome(LEAD_6, (best_ns - 1e3, best_ns, best_ns + 1e3))
    return SearchResult(
        study_id=study_id,
        workload=LAYER.name,
        platform=PLATFORM.name,
        device=device,
        objective="latency",
        sampler="tpe",
        seed=3,
        best=best if best.surely_better_than(default) else default,
        default=default,
        heuristics={},
        ties=(Outcome(LEAD_8, (1.2e6, 1.21e6, 1.22e6)),),
        bound_ns=1.18e6,
        evaluations=4,
        failed=1,
        cuts=(),
        stopped="within 1.7% of the bound",
    )


def searched(store: Store, device: str = "simulator", best_ns: float = 1.2e6) -> StoreJournal:
    """A finished study: four evaluations, one of which failed, and one config that its bound cut."""
    journal = begin_study(store, REQUEST, SPACE, device)
    journal.write(WAVE, "complete", objective_ns=1.53e6)
    journal.write(LEAD_6, "complete", objective_ns=1.25e6)
    journal.write(LEAD_8, "complete", objective_ns=1.23e6)
    journal.write(LEAD_2, "failed", reason="launch timed out")
    journal.write(LEAD_4, "cut", bound_ns=1.3e6, reason="bound")
    journal.conclude(result(journal.study_id, device, best_ns))
    return journal


def test_json_export_has_answer_bound_default_and_identities(
    run_cli: RunCli, store: Store, tmp_path: Path
) -> None:
    journal = searched(store)
    ran = run_cli("export", "-o", str(tmp_path / "out" / "tuned.json"))
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "1.200 ms predicted on simulator, default 1.510 ms, bound 1.180 ms" in ran.stdout
    found = json.loads((tmp_path / "out" / "tuned.json").read_text())
    assert found["config"]["schedule"] == {
        "kind": "interleaved",
        "lead_rows": 6,
        "placement": "even",
    }
    objective = found["objective"]
    assert (objective["basis"], objective["device"]) == ("predicted", "simulator")
    assert (objective["ns"], objective["default_ns"], objective["bound_ns"]) == (1.2e6, 1.51e6, 1.18e6)
    assert (objective["is_default"], objective["ties"], objective["evaluations"]) == (False, 1, 4)
    assert objective["tolerance"] == REQUEST.tolerance
    study = store.studies.get()
    assert found["workload"]["tokens_per_rank"] == 4096
    assert found["platform"]["sha256"] == study.platform_sha256
    assert found["provenance"]["workload_sha256"] == study.workload_sha256
    assert found["provenance"]["study_id"] == journal.study_id
    assert found["provenance"]["tool_version"] == xstage_tune.__version__


def test_an_export_says_by_what_it_was_searched_not_exported(
    run_cli: RunCli, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(store, f"{EMULATION_ON}NVIDIA H200, kernels 0")
    monkeypatch.setattr("xstage_tune.export.identity.__version__", "9.9.9")
    run_cli("export", "-o", str(tmp_path / "tuned.json"))
    provenance = json.loads((tmp_path / "tuned.json").read_text())["provenance"]
    assert provenance["tool_version"] == SEARCHED_BY != "9.9.9"
    assert provenance["kernel_sha256"] == kernel_sha256(LAYER, emulated=True)
    found = xstage_tune.lookup(tmp_path / "tuned.json", LAYER, gpu=PLATFORM.gpu.identity)
    assert found.match == "stale"


def test_a_study_of_before_that_was_kept_says_nothing(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    journal = searched(store)
    with store._database.writing() as session:
        study = session.get(Study, journal.study_id)
        assert study is not None
        study.space = {
            key: value for key, value in study.space.items() if key not in ("tool_version", "kernel_sha256")
        }
    assert run_cli("export", "-o", str(tmp_path / "tuned.json")).exit_code == 0
    found = xstage_tune.lookup(tmp_path / "tuned.json", LAYER, gpu=PLATFORM.gpu.identity)
    assert found.match == "exact"
    assert any("tool" in text for text in found.unchecked)


def test_an_export_carries_what_the_default_rests_on(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store)
    run_cli("export", "--format", "toml", "-o", str(tmp_path / "tuned.toml"))
    far = load_workload(FLASH, ["tokens_per_rank=16"])
    found = xstage_tune.lookup(tmp_path, far, gpu=PLATFORM.gpu.identity)
    assert (found.match, found.config) == ("default", default_config(far, PLATFORM))


def test_an_export_is_found_by_the_lookup(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store)
    bundle = tmp_path / "bundle"
    assert run_cli("export", "--format", "toml", "-o", str(bundle / "flash.toml")).exit_code == 0
    found = xstage_tune.lookup(bundle, LAYER)
    assert (found.match, found.config) == ("exact", LEAD_6)
    choice = xstage_tune.choose_schedule(bundle, [768] * 32)
    assert choice.schedule.lead_rows == 6


def test_a_default_that_nothing_beats_is_exported_as_such(
    run_cli: RunCli, store: Store, tmp_path: Path
) -> None:
    searched(store, best_ns=1.505e6)
    run_cli("export", "--format", "toml", "-o", str(tmp_path / "t.toml"))
    found = tomllib.loads((tmp_path / "t.toml").read_text())
    assert found["objective"]["is_default"] is True
    assert found["config"]["schedule"]["kind"] == "wave"


def test_skeletons_make_the_objective_emulated(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store, device="emulation on NVIDIA H200, kernels 0123456789ab")
    assert run_cli("export", "-o", str(tmp_path / "tuned.json")).exit_code == 0
    assert json.loads((tmp_path / "tuned.json").read_text())["objective"]["basis"] == "emulated"


def test_a_gpu_makes_the_objective_measured(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store, device="cuda:0 NVIDIA H200")
    run_cli("export", "-o", str(tmp_path / "t.json"))
    objective = json.loads((tmp_path / "t.json").read_text())["objective"]
    assert (objective["basis"], objective["device"]) == ("measured", "cuda:0 NVIDIA H200")


def test_other_tuners_get_each_config_once_with_its_last_repeats(
    run_cli: RunCli, store: Store, tmp_path: Path
) -> None:
    searched(store)
    run_cli("export", "--format", "t4", "-o", str(tmp_path / "t4.json"))
    results = json.loads((tmp_path / "t4.json").read_text())["results"]
    by_lead = {found["configuration"].get("lead_rows"): found for found in results}
    assert len(results) == len(by_lead) == 4
    assert by_lead[None]["times"]["runtimes"] == [1.5, 1.51, 1.52]
    assert by_lead[6]["times"]["runtimes"] == [1.199, 1.2, 1.201]
    assert by_lead[2]["invalidity"] == "runtime"
    run_cli("export", "--format", "kernel-tuner", "-o", str(tmp_path / "kt.json"))
    cache = json.loads((tmp_path / "kt.json").read_text())
    assert cache["problem_size"] == [4096, 4096, 2048]
    assert len(cache["cache"]) == 4
    times = [entry["time"] for entry in cache["cache"].values() if isinstance(entry["time"], float)]
    assert min(times) == 1.2


@pytest.mark.parametrize(
    ("form", "suffix"),
    [("json", "json"), ("toml", "toml"), ("header", "h"), ("kernel-tuner", "json"), ("t4", "json")],
)
def test_every_file_is_recorded_with_its_hash_and_is_the_same_again(
    run_cli: RunCli, store: Store, tmp_path: Path, form: str, suffix: str
) -> None:
    journal = searched(store)
    paths = [tmp_path / f"{n}.{suffix}" for n in range(2)]
    for path in paths:
        assert run_cli("export", "--format", form, "-o", str(path)).exit_code == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    rows = store.studies.exports(journal.study_id)
    assert [(row.format, row.path) for row in rows] == [(form, str(path)) for path in paths]
    assert {row.sha256 for row in rows} == {hashlib.sha256(paths[0].read_bytes()).hexdigest()}


def test_a_file_may_have_a_name_that_is_no_text(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store)
    file = tmp_path / os.fsdecode(b"a\xffb.json")
    result = run_cli("export", "-o", str(file))
    assert result.exit_code == 0
    assert "a\\xffb.json: " in result.stdout
    assert xstage_tune.load_bundle(file).exports


@pytest.mark.parametrize("option", ["--study", "--suite"])
def test_an_id_that_is_no_text_is_refused(run_cli: RunCli, store: Store, tmp_path: Path, option: str) -> None:
    searched(store)
    result = run_cli("export", option, os.fsdecode(b"a\xffb"), "-o", str(tmp_path / "a.json"))
    assert result.exit_code == 2
    assert "a\\xffb" in result.stderr


def test_an_existing_file_is_kept_unless_forced(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    journal = searched(store)
    path = tmp_path / "tuned.json"
    path.write_text("mine")
    refused = run_cli("export", "-o", str(path))
    assert refused.exit_code == 2
    assert "exists" in refused.stderr
    assert path.read_text() == "mine"
    assert store.studies.exports(journal.study_id) == []
    assert run_cli("export", "-o", str(path), "--force").exit_code == 0
    assert json.loads(path.read_text())["format"] == "xstage-tune.tuned-config"


@pytest.mark.parametrize(
    ("form", "suffix"), [("json", ".json"), ("toml", ".toml"), ("kernel-tuner", ".json")]
)
def test_a_name_that_its_reader_would_not_see_is_refused(
    run_cli: RunCli, store: Store, tmp_path: Path, form: str, suffix: str
) -> None:
    searched(store)
    ran = run_cli("export", "--format", form, "-o", str(tmp_path / "tuned.txt"))
    assert ran.exit_code == 2
    assert f"must end in {suffix}" in ran.stderr
    assert list(tmp_path.glob("tuned*")) == []


def test_unknown_study(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store)
    ran = run_cli("export", "--study", "study-nowhere", "-o", str(tmp_path / "t.json"))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "no study 'study-nowhere'" in ran.stderr
    assert not (tmp_path / "t.json").exists()


def test_a_study_without_a_result(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    journal = begin_study(store, REQUEST, SPACE, "simulator")
    journal.write(WAVE, "complete", objective_ns=1.5e6)
    journal.abandon("interrupted")
    ran = run_cli("export", "-o", str(tmp_path / "t.json"))
    assert ran.exit_code == 2
    assert "interrupted" in ran.stderr
    assert "--resume" in ran.stderr


def test_latest_is_the_last_study_begun(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store)
    last = searched(store, best_ns=1.1e6)
    run_cli("export", "-o", str(tmp_path / "t.json"))
    found = json.loads((tmp_path / "t.json").read_text())
    assert found["provenance"]["study_id"] == last.study_id
    assert found["objective"]["ns"] == 1.1e6


def test_a_platform_changed_since_the_study_is_refused(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    searched(store)
    faster = PLATFORM.model_copy(update={"drain": PLATFORM.drain.model_copy(update={"bytes_per_s": 800e9})})
    save_platform(faster, tmp_path / "now.toml")
    ran = run_cli("export", "-o", str(tmp_path / "t.json"), "--platform", str(tmp_path / "now.toml"))
    assert ran.exit_code == 2
    assert "its keys differ" in ran.stderr
    save_platform(PLATFORM, tmp_path / "then.toml")
    ran = run_cli("export", "-o", str(tmp_path / "t.json"), "--platform", str(tmp_path / "then.toml"))
    assert ran.exit_code == 0


def test_an_attention_study(run_cli: RunCli, store: Store, tmp_path: Path) -> None:
    attention = load_workload(WAN)
    config = default_config(attention, PLATFORM)
    axes = {name: (value,) for name, value in config.model_dump(exclude={"kind"}).items()}
    journal = begin_study(
        store,
        SearchRequest(workload=attention, platform=PLATFORM),
        build_space(attention, PLATFORM, axes),
        "simulator",
    )
    journal.write(config, "complete", objective_ns=2e6)
    outcome = Outcome(config, (2e6,))
    journal.conclude(
        SearchResult(
            study_id=journal.study_id,
            workload=attention.name,
            platform=PLATFORM.name,
            device="simulator",
            objective="latency",
            sampler="tpe",
            seed=0,
            best=outcome,
            default=outcome,
            heuristics={},
            ties=(),
            bound_ns=1.9e6,
            evaluations=1,
            failed=0,
            cuts=(),
            stopped="1 trials",
        )
    )
    run_cli("export", "-o", str(tmp_path / "a.json"))
    assert xstage_tune.lookup(tmp_path, attention).config == config


def test_a_study_on_a_platform_from_a_file_needs_no_file_later(
    run_cli: RunCli, store: Store, tmp_path: Path
) -> None:
    mine = PLATFORM.model_copy(update={"name": "mine", "description": "in no folder of profiles"})
    journal = begin_study(store, REQUEST.changed(platform=mine), SPACE, "simulator")
    journal.write(WAVE, "complete", objective_ns=1.5e6)
    journal.conclude(result(journal.study_id, "simulator"))
    assert run_cli("export", "-o", str(tmp_path / "t.json")).exit_code == 0
    found = json.loads((tmp_path / "t.json").read_text())["platform"]
    assert (found["name"], found["sha256"]) == ("mine", store.studies.get().platform_sha256)
