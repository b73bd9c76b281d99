"""Commands end with what to do next: commands that parse, and that find what is named in them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import xstage_tune
from tests.calibration.fluid import Fluid, FluidDevice
from tests.conftest import RunCli
from xstage_tune.commands._app import app
from xstage_tune.devices import opener
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform

SEARCH = ("search", "-w", "fa-a2a/paper", "-p", "paper-nvlink5", "--trials", "2")
EMULATION = (
    "emulate", "-w", "megamoe/deepseek-v4-flash", "-p", "h200-host", "--set", "tokens_per_rank=64",
    "--device", "simulator", "--repeats", "1",
)  # fmt: skip
QUICK = ("--budget", "quick", "--store-flavour", "st.v4")


@pytest.fixture(autouse=True)
def _advising(own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """A user's own store and folder, and a program that may speak."""
    monkeypatch.delenv("XSTAGE_QUIET")
    monkeypatch.chdir(tmp_path)


def steps_in(stderr: str) -> list[list[str]]:
    """The arguments of the commands that a user is pointed to; each must parse."""
    marked = [line.partition("next: ")[2] for line in stderr.splitlines() if "next: " in line]
    commands = [shlex.split(line, comments=True) for line in marked]
    root = typer.main.get_command(app)
    for program, name, *arguments in commands:
        if program == "xstage-tune":
            chosen = root.commands[name]
            chosen.make_context(name, list(arguments))
    return [command[1:] for command in commands]


def test_what_a_search_points_to_works_as_printed(run_cli: RunCli) -> None:
    export, report = steps_in(run_cli(*SEARCH).stderr)
    exported = run_cli(*export)
    assert exported.exit_code == 0
    assert run_cli(*report).exit_code == 0
    assert Path(report[-1]).exists()
    (lookup,) = steps_in(exported.stderr)
    ran = subprocess.run([sys.executable, *lookup], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_store_is_named_where_the_next_command_would_not_find_it(run_cli: RunCli, tmp_path: Path) -> None:
    other = tmp_path / "other store.db"
    export, _ = steps_in(run_cli(*SEARCH, "--store", str(other)).stderr)
    assert export[1:3] == ["--store", str(other)]
    assert run_cli(*export).exit_code == 0


def test_what_an_emulation_points_to_works_as_printed(run_cli: RunCli) -> None:
    report, trace = steps_in(run_cli(*EMULATION).stderr)
    assert run_cli(*report).exit_code == 0
    assert run_cli(*trace).exit_code == 0


def test_a_calibration_points_to_commands_on_the_profile_it_wrote(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "open_cuda", lambda *_: FluidDevice(Fluid()))
    own = run_cli("calibrate", *QUICK)
    elsewhere = run_cli("calibrate", *QUICK, "--out", "here.toml")
    for run in (own, elsewhere):
        steps = steps_in(run.stderr)
        assert steps
        for step in steps:
            load_platform(step[step.index("-p") + 1] if "-p" in step else step[-1])
    assert "here.toml" in elsewhere.stderr


def test_calibrate_search_export_and_lookup_are_one_piece(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick start, on a machine without a GPU, naming no platform."""
    monkeypatch.setattr("xstage_tune.devices.platform_choice.present_gpu", lambda: None)
    calibrated = run_cli("calibrate", "--device", "replay")
    assert calibrated.exit_code == 0
    steps = steps_in(calibrated.stderr)
    assert steps
    for step in steps:
        assert load_platform(step[step.index("-p") + 1]).provenance.replayed_from == "h200-host"
    layer = ("-w", "megamoe/deepseek-v4-flash", "--set", "tokens_per_rank=64")
    searched = run_cli("search", *layer, "--trials", "2", "--format", "json")
    assert searched.exit_code == 0
    assert json.loads(searched.stdout)["platform"] == "replayed-h200-host"
    assert "replayed from the recording h200-host, of NVIDIA H200" in searched.stderr
    for command in ("audit", "emulate"):
        shown = run_cli(command, *layer, "--format", "json")
        assert shown.exit_code == 0
        assert "replayed-h200-host" in shown.stdout
    assert run_cli("export", "--study", "latest", "-o", "tuned.json").exit_code == 0
    workload = load_workload("megamoe/deepseek-v4-flash", ["tokens_per_rank=64"])
    assert xstage_tune.lookup("tuned.json", workload).match == "exact"


@pytest.mark.parametrize("arguments", [("--quiet", *SEARCH), (*SEARCH, "--format", "json")])
def test_scripts_are_given_no_advice(run_cli: RunCli, arguments: tuple[str, ...]) -> None:
    assert "next:" not in run_cli(*arguments).stderr
