"""Kernel Tuner itself reads the cache, replays a search on it and carries on; its T4 schema holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.export.cases import FLASH, tuned
from tests.export.test_formats import TRIALS
from xstage_tune.export.formats import render
from xstage_tune.export.history import History
from xstage_tune.export.names import ExportFormat


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache.json"
    path.write_text(render(History(tuned(FLASH), TRIALS), ExportFormat.KERNEL_TUNER))
    return path


@pytest.mark.filterwarnings("ignore")  # of Kernel Tuner and its dependencies
def test_a_simulated_search_on_the_cache_finds_the_winner(cache: Path) -> None:
    import kernel_tuner

    results, environment = kernel_tuner.tune_cache(
        str(cache), strategy="brute_force", verbose=False, quiet=True
    )
    times = {(result["schedule"], result["lead_rows"]): result["time"] for result in results}
    assert times == {("wave", 0): 1.5, ("interleaved", 6): 1.2, ("alternating", 0): 1.4}
    assert environment["best_config"]["schedule"] == "interleaved"


def test_its_reader_marks_what_failed_and_what_could_not_run(cache: Path) -> None:
    from kernel_tuner.util import InvalidConfig, RuntimeFailedConfig, read_cache

    entries = read_cache(str(cache), open_cache=False)["cache"]
    assert isinstance(entries["128,interleaved,0,3"]["__error__"], RuntimeFailedConfig)
    assert isinstance(entries["256,wave,1,0"]["__error__"], InvalidConfig)
    assert "__error__" not in entries["192,wave,2,0"]


def test_it_can_carry_on_with_the_cache(cache: Path) -> None:
    from kernel_tuner.util import close_cache, read_cache, store_cache

    read_cache(str(cache))  # reopens the file for appending
    store_cache("64,alternating,0,0", {"block_m": 64, "time": 2.0}, str(cache), {})
    close_cache(str(cache))
    entries = json.loads(cache.read_text())["cache"]
    assert len(entries) == len(TRIALS) + 1
    assert entries["64,alternating,0,0"]["time"] == 2.0


def test_t4_results_satisfy_its_schema_and_have_what_its_own_have() -> None:
    import jsonschema
    from kernel_tuner.file_utils import get_t4_results, output_file_schema

    found = json.loads(render(History(tuned(FLASH), TRIALS), ExportFormat.T4))
    version, schema = output_file_schema("results")
    jsonschema.validate(found, schema)
    assert found["schema_version"] == version
    phases = ("compile", "benchmark", "framework", "strategy", "verification")
    result = {
        "block_m": 1,
        "time": 1.0,
        "times": [1.0],
        "timestamp": "t",
        **{f"{p}_time": 0.0 for p in phases},
    }
    theirs = get_t4_results([result], {"block_m": [1]})
    assert set(theirs) == set(found)
    assert set(theirs["results"][0]) == set(found["results"][0])
