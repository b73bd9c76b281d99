"""``calibrate`` as a user meets it: results, refusals, and what is kept when it goes wrong."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.calibration.fluid import Fluid, FluidDevice
from tests.conftest import CliResult, RunCli
from tests.processes import WarmProcess, interrupt, start, wait_for_launches
from xstage_tune.calibration.result import Finding
from xstage_tune.devices import opener
from xstage_tune.launches.bursts import CopyProbe
from xstage_tune.launches.device import Outcome
from xstage_tune.platforms.choice import chosen_platform
from xstage_tune.platforms.loader import list_own_platforms, load_platform
from xstage_tune.store.facade import Store

QUICK = ("--budget", "quick", "--store-flavour", "st.v4")


class Stopping(FluidDevice):
    """A fluid device on which something happens before the ``after``-th run."""

    def __init__(self, truth: Fluid, after: int, happening: Callable[[], None]) -> None:
        super().__init__(truth)
        self._left = after
        self._happening = happening

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        for run in super().run(launches):
            if isinstance(run.launch, CopyProbe):
                yield run
                continue
            if self._left == 0:
                self._happening()
            self._left -= 1
            yield run


def use(monkeypatch: pytest.MonkeyPatch, device: FluidDevice) -> None:
    monkeypatch.setattr(opener, "open_cuda", lambda *_: device)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def measured(profile: Path) -> dict[str, Any]:
    """A profile without what tells one run of the tool from another."""
    values = load_platform(str(profile)).model_dump(mode="json")
    for key in ("run_id", "argv", "host"):
        del values["provenance"][key]
    return values


def test_replay_gives_the_live_profile_number_for_number_a_table_and_a_figure(
    run_cli: RunCli, recording: Path, store: Path, tmp_path: Path
) -> None:
    out, figure = tmp_path / "replayed.toml", tmp_path / "figure.svg"
    out.write_text("old")
    targets = ("--out", str(out), "--plot", str(figure), "--store", str(store), "--force")
    result = run_cli("calibrate", "--device", f"replay:{recording}", *targets)
    assert (result.exit_code, result.stderr) == (0, "")
    assert measured(out) == measured(recording.with_name("live.toml"))
    for part in ("drain rate R", "Outstanding capacity, Q", "Arbitration", "Validation", "run cal-"):
        assert part in result.stdout
    assert "<svg" in figure.read_text()


def test_every_launch_is_kept_with_its_spans_and_a_page_holds_the_figure(
    run_cli: RunCli, recording: Path, store: Path, tmp_path: Path
) -> None:
    page = tmp_path / "figure.html"
    run_cli("calibrate", "--device", f"replay:{recording}", "--store", str(store), "--plot", str(page))
    assert "<svg" in page.read_text()
    with Store.open(store) as opened:
        run = opened.run()
        launches = opened.launches(run.id)
        assert (run.kind, run.status, run.seed) == ("calibrate", "finished", 5)
        assert [launch.sequence for launch in launches] == list(range(len(launches)))
        assert sum(len(launch.table().spans) for launch in launches) > 10_000
        assert {fit.kind for fit in opened.fits(run.id)} == {"copy-rate", "calibration"}
        assert opened.check().problems == ()


def test_json_is_the_result_alone_and_holds_the_documented_keys(
    run_cli: RunCli, recording: Path, store: Path
) -> None:
    arguments = ("calibrate", "--device", f"replay:{recording}", "--store", str(store), "--format", "json")
    first, second = (json.loads(run_cli(*arguments).stdout) for _ in range(2))
    platform = first["platform"]
    assert platform["name"] == "fluid-1-host"
    low, high = platform["drain"]["ci95"]
    assert low <= platform["drain"]["bytes_per_s"] <= high
    assert {"producers", "burst_bytes", "ns", "flavour"} <= platform["issue"][0].keys()
    assert {"producers", "bytes", "ci95", "flavour"} <= platform["capacity"][0].keys()
    assert {"sm_ids", "share"} <= platform["arbitration"]["groups"][0].keys()
    assert -1 <= platform["arbitration"]["repeat_correlation"] <= 1
    keys = {"period_median_pct", "period_p95_pct", "isolated_median_pct"}
    assert keys <= platform["validation"].keys()
    assert first["run_id"] != second["run_id"]
    for result in (first, second):
        del result["run_id"], result["platform"]["provenance"]
    assert first == second


@pytest.mark.parametrize(
    ("option", "name", "complaint"),
    [
        ("--out", "profile.json", r"must end in .toml"),
        ("--plot", "figure.png", r"must end in .svg or .html"),
        ("--record", "run.zip", r"must end in .xsrec"),
        ("--out", "taken.toml", "exists"),
    ],
)
def test_targets_are_refused_before_anything_is_measured(
    run_cli: RunCli, recording: Path, store: Path, tmp_path: Path, option: str, name: str, complaint: str
) -> None:
    (tmp_path / "taken.toml").write_text("mine")
    target = tmp_path / name
    result = run_cli(
        "calibrate", "--device", f"replay:{recording}", "--store", str(store), option, str(target)
    )
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not store.exists()
    assert (tmp_path / "taken.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--device", "tpu"), 2, "--device 'tpu' is unknown"),
        (("--device", "replay:no-such"), 2, "no recording named 'no-such'"),
        (("--path", "nvlink"), 2, "nvlink"),
        (("--budget", "huge"), 2, "huge"),
        (("--seed", "-1"), 2, "greater than or equal to 0"),
    ],
)
def test_bad_arguments_are_one_clear_complaint(
    run_cli: RunCli, store: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = run_cli("calibrate", "--store", str(store), *arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        (("--path", "peer"), "path host"),
        (("--budget", "full"), "budget quick"),
        (("--store-flavour", "tma", "--seed", "6"), "flavours st.v4, seed 5"),
    ],
)
def test_only_what_was_recorded_is_replayed(
    run_cli: RunCli, recording: Path, store: Path, options: tuple[str, ...], recorded: str
) -> None:
    result = run_cli("calibrate", "--device", f"replay:{recording}", "--store", str(store), *options)
    assert result.exit_code == 2
    assert f"the recording was made with {recorded}" in result.stderr
    assert not store.exists()


def test_device_without_the_path_is_refused(
    run_cli: RunCli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FluidDevice(Fluid()))
    result = run_cli("calibrate", *QUICK, "--store", str(store), "--path", "peer")
    assert result.exit_code == 3
    assert "no path 'peer'" in result.stderr


def test_local_path_is_a_control_and_no_platform(run_cli: RunCli, recording: Path, store: Path) -> None:
    result = run_cli("calibrate", "--device", f"replay:{recording}", "--store", str(store), "--path", "local")
    assert result.exit_code == 2
    assert "the control" in result.stderr


def refused(result: CliResult, out: Path) -> None:
    assert result.exit_code == 1
    assert not out.exists()
    assert result.stderr.splitlines()[-1].startswith("  try: ")
    assert "Traceback" not in result.stderr


def test_unstable_measurement_writes_no_profile_but_keeps_the_run(
    run_cli: RunCli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FluidDevice(Fluid(copy_bytes_per_s=40e9)))
    out = tmp_path / "profile.toml"
    result = run_cli("calibrate", *QUICK, "--store", str(store), "--out", str(out), "--format", "json")
    refused(result, out)
    findings = json.loads(result.stdout)["findings"]
    assert "drain-above-copy-engine" in {finding["code"] for finding in findings}
    for finding in findings:  # each is told beside the result, which stdout has alone
        kind = {"refuse": "error: no profile written", "warn": "warning"}[finding["severity"]]
        assert f"xstage-tune: {kind}: {finding['message']}" in result.stderr
    with Store.open(store) as opened:
        assert opened.run().status == "finished"


@pytest.mark.parametrize("form", ["table", "json"])
def test_warnings_go_to_stderr_and_not_into_the_result(
    run_cli: RunCli, recording: Path, store: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    warning = Finding("clock-fell", "warn", "the SM clock fell by 7%", "let the GPU cool")
    monkeypatch.setattr("xstage_tune.calibration.fit.validation_findings", lambda _: [warning])
    result = run_cli("calibrate", "--device", f"replay:{recording}", "--store", str(store), "--format", form)
    assert result.exit_code == 0
    assert (
        "xstage-tune: warning: the SM clock fell by 7% (clock-fell)\n  try: let the GPU cool\n"
        in result.stderr
    )
    if form == "json":
        assert "clock-fell" in {finding["code"] for finding in json.loads(result.stdout)["findings"]}
    else:
        assert "the SM clock fell" not in result.stdout


def test_data_that_did_not_arrive_fail_the_run_and_name_the_path(
    run_cli: RunCli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FluidDevice(Fluid(mismatched=lambda point: 4 * (point.gap_ns > 0))))
    out = tmp_path / "profile.toml"
    result = run_cli("calibrate", *QUICK, "--store", str(store), "--out", str(out))
    refused(result, out)
    assert "path 'host'" in result.stderr
    with Store.open(store) as opened:
        run = opened.run()
        assert run.status == "failed"
        assert any(launch.verification.mismatched_bytes for launch in opened.launches(run.id))


def test_interrupt_keeps_what_was_measured(
    run_cli: RunCli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Stopping(Fluid(), 7, interrupt))
    recording, out = tmp_path / "run.xsrec", tmp_path / "profile.toml"
    result = run_cli(
        "calibrate", *QUICK, "--store", str(store), "--out", str(out), "--record", str(recording)
    )
    assert result.exit_code == 130
    assert "7 launches are kept in run cal-" in result.stderr
    assert ", and no recording was written\n" in result.stderr
    assert not out.exists()
    assert not recording.exists()
    with Store.open(store) as opened:
        run = opened.run()
        assert run.status == "interrupted"
        assert len(opened.launches(run.id)) == 7
        assert opened.check().problems == ()


def start_calibrating(store: Path, seconds: float, **environment: str) -> WarmProcess:
    return start(store.parent, "tests.commands.scripted", str(store), str(seconds), **environment)


def test_killed_sweep_is_stale_and_its_launches_are_whole(store: Path) -> None:
    process = start_calibrating(store, 0.02)
    wait_for_launches(store, 3)
    process.send_signal(signal.SIGKILL)
    process.communicate(30)
    with Store.open(store) as opened:
        run = opened.run()
        assert run.status == "stale"
        assert len(opened.launches(run.id)) >= 3
        assert opened.check().problems == ()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"]
)
def test_a_signal_interrupts_a_sweep(store: Path, number: signal.Signals, code: int) -> None:
    process = start_calibrating(store, 0.02)
    wait_for_launches(store, 3)
    process.send_signal(number)
    stdout, stderr = process.communicate(30)
    assert process.returncode == code
    assert stdout == ""
    assert "are kept in run" in stderr
    assert "Traceback" not in stderr


def test_two_calibrations_share_a_store(store: Path) -> None:
    processes = [start_calibrating(store, 0.0) for _ in range(2)]
    outputs = [process.communicate(120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    runs = {json.loads(stdout)["run_id"] for stdout, _ in outputs}
    with Store.open(store) as opened:
        assert {run.id for run in opened.runs()} == runs
        assert {run.status for run in opened.runs()} == {"finished"}
        counts = {len(opened.launches(run)) for run in runs}
        assert len(counts) == 1
        assert opened.check().problems == ()


def test_full_disk_is_a_store_error_that_loses_nothing(store: Path) -> None:
    process = start_calibrating(store, 0.0, FILE_SIZE_LIMIT=str(400_000))
    _, stderr = process.communicate(60)
    assert process.returncode == 4
    assert str(store) in stderr
    assert "Traceback" not in stderr
    with Store.open(store) as opened:
        assert len(opened.launches(opened.run().id)) > 0
        assert opened.check().problems == ()


def test_a_replayed_profile_is_kept_under_a_name_of_its_own(
    run_cli: RunCli, recording: Path, store: Path
) -> None:
    arguments = ("calibrate", "--device", f"replay:{recording}", "--store", str(store), "--format", "json")
    file = Path(json.loads(run_cli(*arguments).stdout)["profile"])
    kept = load_platform("replayed-fluid-1-host")
    assert file == list_own_platforms()["replayed-fluid-1-host"]
    assert kept.provenance.replayed_from == "run"
    written = file.read_bytes()
    again = run_cli(*arguments)
    assert json.loads(again.stdout)["profile"] == str(file)
    assert file.read_bytes() == written
    assert list(list_own_platforms()) == ["replayed-fluid-1-host"]


def test_a_measured_profile_is_taken_before_a_replayed_one(
    run_cli: RunCli, recording: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli("calibrate", "--device", f"replay:{recording}", "--store", str(store))
    use(monkeypatch, FluidDevice(Fluid()))
    assert run_cli("calibrate", *QUICK, "--store", str(store)).exit_code == 0
    assert list(list_own_platforms()) == ["fluid-1-host", "replayed-fluid-1-host"]
    assert chosen_platform(None).profile.name == "fluid-1-host"
