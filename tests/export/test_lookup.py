"""``xstage_tune.lookup`` over a folder of exports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import xstage_tune
from tests.export.cases import FLASH, WAN, changed, tuned, write
from xstage_tune.base.errors import UsageError
from xstage_tune.export.bundle import Bundle
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform


def bundle_of(folder: Path, **exports: Any) -> Bundle:
    for name, export in exports.items():
        write(folder, name, export)
    return xstage_tune.load_bundle(folder)


def tokens_of(found: Any) -> int:
    return int(found.source.workload.tokens_per_rank)


def test_exact_workload_is_found_with_its_provenance(tmp_path: Path) -> None:
    export = tuned(FLASH)
    found = xstage_tune.lookup(bundle_of(tmp_path, a=export, b=tuned(WAN)), load_workload(FLASH))
    assert (found.match, found.differs) == ("exact", ())
    assert found.config == export.config
    assert found.source == export
    assert found.source.objective.basis == "predicted"


def test_a_folder_and_a_name_serve_too(tmp_path: Path) -> None:
    write(tmp_path, "a", tuned(WAN))
    assert xstage_tune.lookup(tmp_path, WAN).match == "exact"
    assert xstage_tune.lookup(str(tmp_path), WAN).match == "exact"


def test_one_export_s_file_serves_too(tmp_path: Path) -> None:
    for name, layer in {"a": FLASH, "b": WAN}.items():
        write(tmp_path, name, tuned(layer))
    file = tmp_path / "b.json"
    assert xstage_tune.load_bundle(file).exports == (tuned(WAN),)
    assert xstage_tune.lookup(str(file), WAN).match == "exact"
    with pytest.raises(UsageError, match="no export of platform 'other' in"):
        xstage_tune.load_bundle(file, platform="other")


@pytest.mark.parametrize("name", ["t4.json", "tuned.h", "absent.json"])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, name: str) -> None:
    for other in ("t4.json", "tuned.h"):
        (tmp_path / other).write_text('{"results": []}')
    with pytest.raises(UsageError, match=f"no export in {tmp_path / name}"):
        xstage_tune.load_bundle(tmp_path / name)


def test_name_and_source_of_a_workload_do_not_matter(tmp_path: Path) -> None:
    asked = load_workload(FLASH, ["name=ours", "source=config.json", "description=same layer"])
    assert xstage_tune.lookup(bundle_of(tmp_path, a=tuned(FLASH)), asked).match == "exact"


@pytest.mark.parametrize(
    ("asked", "expected"), [(600, 1024), (500, 256), (512, 1024), (9000, 4096), (1, 256)]
)
def test_nearest_tokens_as_a_ratio_and_more_of_two_as_close(
    tmp_path: Path, asked: int, expected: int
) -> None:
    exports = {f"t{n}": tuned(FLASH, f"tokens_per_rank={n}") for n in (256, 1024, 4096)}
    asked_for = load_workload(FLASH, [f"tokens_per_rank={asked}"])
    found = xstage_tune.lookup(bundle_of(tmp_path, **exports), asked_for, max_token_ratio=math.inf)
    assert (found.match, tokens_of(found)) == ("nearest", expected)
    assert found.differs == ("tokens_per_rank",)


def test_same_routing_comes_before_close_tokens(tmp_path: Path) -> None:
    zipf = ("routing.kind=zipf", "routing.alpha=1.0")
    bundle = bundle_of(
        tmp_path, even=tuned(FLASH, "tokens_per_rank=1000"), skewed=tuned(FLASH, "tokens_per_rank=64", *zipf)
    )
    found = xstage_tune.lookup(bundle, load_workload(FLASH, ["tokens_per_rank=1024", *zipf]))
    assert tokens_of(found) == 64
    odd = xstage_tune.lookup(
        bundle, load_workload(FLASH, ["tokens_per_rank=1024", "routing.kind=zipf", "routing.alpha=0.5"])
    )
    assert tokens_of(odd) == 1000
    assert odd.differs == ("routing", "tokens_per_rank")


@pytest.mark.parametrize(
    "other", ["hidden=8192", "intermediate=4096", "experts=128", "top_k=8", "ep_degree=4", "precision=bf16"]
)
def test_another_layer_is_never_given(tmp_path: Path, other: str) -> None:
    bundle = bundle_of(tmp_path, a=tuned(FLASH))
    with pytest.raises(UsageError, match="no export for the layer") as caught:
        xstage_tune.lookup(bundle, load_workload(FLASH, [other]))
    assert "xstage-tune search" in caught.value.hint


def test_mixed_platforms_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    platform = load_platform("paper-nvlink5")
    write(tmp_path, "a", tuned(FLASH))
    write(tmp_path, "b", tuned(WAN, platform=platform.model_copy(update={"name": "other"})))
    with pytest.raises(UsageError, match="different platforms: name paper-nvlink5 and other"):
        xstage_tune.load_bundle(tmp_path)
    chosen = xstage_tune.load_bundle(tmp_path, platform="other")
    assert [export.workload.name for export in chosen.exports] == [WAN]


def test_two_calibrations_of_a_platform_are_not_mixed_either(tmp_path: Path) -> None:
    again = tuned(WAN)
    newer = again.model_copy(update={"platform": again.platform.model_copy(update={"sha256": "ef" * 32})})
    write(tmp_path, "a", tuned(FLASH))
    write(tmp_path, "b", newer)
    with pytest.raises(UsageError, match="sha256"):
        xstage_tune.load_bundle(tmp_path)


def test_two_configs_for_one_workload_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.json and b\.json both hold a config"):
        bundle_of(tmp_path, a=tuned(FLASH), b=tuned(FLASH, ns=1.3e6))


def test_toml_and_json_read_the_same_and_other_files_are_left_out(tmp_path: Path) -> None:
    export = tuned(FLASH)
    (tmp_path / "a.toml").write_text(tomli_w.dumps(export.keys()))
    (tmp_path / "t4.json").write_text('{"results": []}')
    (tmp_path / "notes.txt").write_text("not ours")
    assert xstage_tune.load_bundle(tmp_path).exports == (export,)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "invalid JSON"),
        ("a.toml", "= 3", "invalid TOML"),
        ("a.json", '{"format": "xstage-tune.tuned-config", "schema_version": 2}', "schema_version"),
    ],
)
def test_a_broken_export_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        xstage_tune.load_bundle(tmp_path)
    assert name in caught.value.message


def test_a_key_of_a_newer_version_is_named_with_that_version(tmp_path: Path) -> None:
    keys = changed(tuned(FLASH), provenance={"tool_version": "7.0.0"}).keys()
    keys["config"]["warp_split"] = 2
    (tmp_path / "newer.json").write_text(json.dumps(keys))
    with pytest.raises(UsageError, match=r"newer\.json: unknown key 'config\.warp_split'") as caught:
        xstage_tune.load_bundle(tmp_path)
    assert "7.0.0" in caught.value.hint


def test_an_export_of_before_identities_were_kept_is_read(tmp_path: Path) -> None:
    keys = tuned(FLASH).keys()
    del keys["default_terms"], keys["platform"]["gpu_identity"], keys["provenance"]["kernel_sha256"]
    (tmp_path / "old.json").write_text(json.dumps(keys))
    assert xstage_tune.lookup(tmp_path, FLASH).match == "exact"


def test_an_empty_folder_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no export in") as caught:
        xstage_tune.load_bundle(tmp_path)
    assert "xstage-tune export" in caught.value.hint


def test_a_lookup_is_fast(tmp_path: Path) -> None:
    """50 us on a server's core, of which the machine that runs tests gets 4 times that."""
    exports = {f"t{n}": tuned(FLASH, f"tokens_per_rank={n}") for n in (64, 256, 1024, 4096)}
    bundle = bundle_of(tmp_path, **exports)
    for asked in ("tokens_per_rank=1024", "tokens_per_rank=900"):
        workload = load_workload(FLASH, [asked])
        laps = []
        for _ in range(50):
            start = time.perf_counter()
            xstage_tune.lookup(bundle, workload)
            laps.append(time.perf_counter() - start)
        assert min(laps) < 200e-6


def test_importing_the_package_loads_nothing() -> None:
    program = "import sys, xstage_tune; print(sorted({'numpy', 'pydantic', 'json'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


HEAVY = {
    *("numba", "scipy", "optuna", "sqlalchemy", "alembic", "torch", "cuda"),
    *("rich", "typer", "jinja2", "dask", "distributed"),
}


@pytest.mark.parametrize("tokens", [64, 8192], ids=["default", "exact"])
def test_a_lookup_loads_nothing_that_a_server_does_not_need(tmp_path: Path, tokens: int) -> None:
    """Neither does a choice of schedule, and asking the machine for its GPU."""
    write(tmp_path, "flash", tuned(FLASH))
    program = (
        "import sys, xstage_tune\n"
        f"bundle = xstage_tune.load_bundle({str(tmp_path)!r})\n"
        f"found = xstage_tune.lookup(bundle, {FLASH!r}, tokens={tokens})\n"
        f"xstage_tune.choose_schedule(bundle, [{tokens * 6 // 32}] * 32)\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="lookups"):
        _ = xstage_tune.lookups  # type: ignore[attr-defined]
