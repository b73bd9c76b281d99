"""Templates of one's own workloads and platforms: they load, find their names, and overwrite nothing."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import RunCli
from xstage_tune.base.errors import ExitCode
from xstage_tune.base.profile_files import check_profile
from xstage_tune.base.schema_keys import schema_keys
from xstage_tune.families.registry import families
from xstage_tune.families.workload_files import load_workload
from xstage_tune.families.workload_template import workload_template
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.platforms.template import platform_template

pytestmark = pytest.mark.usefixtures("own_store")


def with_optional_keys(template: str) -> str:
    return re.sub(r"^#(?! )", "", template, flags=re.MULTILINE)


#: Of one file; a space has what measures beside it.
WORKLOAD_MODELS = {
    family.workload_kind: family.workload_model for family in families() if not family.template_companions()
}


@pytest.mark.parametrize("kind", WORKLOAD_MODELS)
def test_a_workload_has_every_key_with_what_the_schema_says(kind: str) -> None:
    template = workload_template("mine/layer", kind)
    assert tomllib.loads(template)["kind"] == kind
    flowing = template.replace("\n# ", " ")
    for key in schema_keys(WORKLOAD_MODELS[kind]):
        line = re.search(rf"^#?(?:\[{key.name}\]|{key.name} = .*)$", template, flags=re.MULTILINE)
        assert line is not None
        assert key.description in flowing
        assert key.allowed.lower() in flowing.lower()
        assert not (line[0].startswith("#") and key.required)


def test_optional_keys_of_an_attention_can_all_be_given() -> None:
    keys = tomllib.loads(with_optional_keys(workload_template("mine", "attention")))
    assert check_profile(WORKLOAD_MODELS["attention"], keys, "template").model_fields_set == set(
        WORKLOAD_MODELS["attention"].model_fields
    )


@pytest.mark.parametrize("routing", ["balanced", "zipf", "histogram"])
def test_optional_keys_of_a_layer_can_be_given_with_the_routing_that_they_are_for(routing: str) -> None:
    keys = tomllib.loads(with_optional_keys(workload_template("mine", "moe")))
    of_kind = {"balanced": (), "zipf": ("alpha", "seed"), "histogram": ("histogram",)}[routing]
    keys["routing"] = {"kind": routing} | {key: keys["routing"][key] for key in of_kind}
    check_profile(WORKLOAD_MODELS["moe"], keys, "template")


def test_optional_keys_of_a_platform_can_all_be_given(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text(with_optional_keys(platform_template("mine")))
    platform = load_platform(str(path))
    assert platform.model_fields_set == set(PlatformProfile.model_fields)
    assert platform.compute is not None
    assert platform.compute.attention[0].split is not None


def test_a_workload_is_found_by_its_name(run_cli: RunCli) -> None:
    code, out, err = run_cli("workloads", "new", "acme/own_layer")
    path = Path(out.rstrip("\n"))
    assert code == 0
    assert path.is_file()
    assert "xstage-tune workloads show acme/own_layer" in err
    assert load_workload("acme/own_layer").name == "acme/own_layer"
    assert str(path.parents[1]) == run_cli("workloads", "path").stdout.rstrip("\n")
    assert str(path.parents[1]) in run_cli("workloads", "list").stdout


def test_a_space_is_begun_with_what_measures_it(run_cli: RunCli) -> None:
    result = run_cli("workloads", "new", "own/kernel", "--kind", "own")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert "init-space" in result.stderr


def test_a_folder_with_an_underscore_is_found_with_a_hyphen(run_cli: RunCli) -> None:
    _, _, err = run_cli("workloads", "new", "my_models/layer")
    assert "workloads show my-models/layer" in err
    assert load_workload("my-models/layer").name == "my-models/layer"


def test_templates_can_be_audited_at_once(run_cli: RunCli) -> None:
    run_cli("platforms", "new", "mine")
    for kind in WORKLOAD_MODELS:
        run_cli("workloads", "new", f"own/{kind}", "--kind", kind)
        result = run_cli("audit", "--workload", f"own/{kind}", "--platform", "mine")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "not measured" in result.stdout  # its numbers are told to be examples


def test_a_file_is_written_where_it_is_wanted(run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "sub folder" / "mine.toml"
    code, out, err = run_cli("workloads", "new", "mine", "--kind", "attention", "-o", str(path))
    assert (code, out) == (0, f"{path}\n")
    assert f"workloads show '{path}'" in err
    assert load_workload(str(path)).name == "mine"


@pytest.mark.parametrize("what", ["workloads", "platforms"])
def test_nothing_is_overwritten_without_force(run_cli: RunCli, tmp_path: Path, what: str) -> None:
    for place in ((), ("-o", str(tmp_path / "mine.toml"))):
        path = Path(run_cli(what, "new", "mine", *place).stdout.rstrip("\n"))
        path.write_text("kept")
        code, out, err = run_cli(what, "new", "mine", *place)
        assert (code, out) == (2, "")
        assert "--force" in err
        assert path.read_text() == "kept"
        assert run_cli(what, "new", "mine", *place, "--force").exit_code == 0
        assert path.read_text() != "kept"


@pytest.mark.parametrize(
    "arguments",
    [
        ("workloads", "new", "megamoe/mixtral-8x7b"),  # shipped: one's own would hide it
        ("platforms", "new", "h200-peer"),
        ("workloads", "new", "Upper Case"),
        ("workloads", "new", "a/../../../b"),
        ("workloads", "new", "a//b"),
        ("workloads", "new", "mine.toml"),
        ("platforms", "new", "a/b"),
        ("platforms", "new", "mine", "-o", "mine.json"),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    run_cli: RunCli, own_store: Path, arguments: tuple[str, ...]
) -> None:
    code, out, err = run_cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("xstage-tune: error: ")
    assert not (own_store.parent / "data").exists()


def test_an_unchanged_template_is_never_said_to_be_measured(run_cli: RunCli) -> None:
    run_cli("platforms", "new", "mine")
    run_cli("workloads", "new", "own/layer")
    audited = run_cli("audit", "-w", "own/layer", "-p", "mine", "--closed-forms", "--format", "json")
    basis = json.loads(audited.stdout)["basis"]
    assert {basis[key]["basis"] for key in ("drain_bytes_per_s", "capacity_bytes")} <= {"assumed", "derived"}
    assert basis["drain_bytes_per_s"]["basis"] == "assumed"
    assert run_cli("search", "-w", "own/layer", "--trials", "1").exit_code == 2
