"""``emulate`` as a user meets it: results, refusals, and what is kept when it goes wrong."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.configs.cases import attention_config, megamoe_config
from tests.conftest import RunCli, without_choice
from tests.emulation.gpu import SMALL, ScriptedGpu, use
from tests.processes import interrupt, start, wait_for_launches
from tests.report.pages import Page
from xstage_tune.base.errors import DeviceError
from xstage_tune.devices import opener
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.store.facade import Store

SIMULATED = ("--device", "simulator", "--repeats", "2")
FA = ("--workload", "fa-a2a/paper", "--set", "tokens=1024")


def emulated(run_cli: RunCli, *arguments: str) -> dict[str, Any]:
    """The JSON of an emulation that succeeds."""
    result = run_cli("emulate", *arguments, "--format", "json")
    assert (result.exit_code, without_choice(result.stderr)) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_holds_the_documented_keys_and_is_the_same_every_time(run_cli: RunCli) -> None:
    first, second = (emulated(run_cli, *SMALL, *SIMULATED) for _ in range(2))
    assert first.pop("run_id") != second.pop("run_id")
    assert first == second
    assert first["workload"] == "megamoe/deepseek-v4-flash"
    assert first["workload_keys"]["tokens_per_rank"] == 64
    assert (first["platform"], first["device"], first["path"]) == ("h200-host", "simulator", "host")
    assert [case["schedule"] for case in first["cases"]] == ["wave", "interleaved", "alternating"]
    case = first["cases"][0]
    assert {
        "makespan_ns", "issue_mean_ns", "issue_p50_ns", "issue_p90_ns", "issue_p99_ns", "issue_all_mean_ns",
        "stall_ns", "dependency_wait_ns", "tensor_active",
    } == case["emulated"].keys()  # fmt: skip
    assert len(case["samples_ns"]) == 2
    assert case["simulated"] is None
    assert case["closed_form"]["makespan_ns"] > 0
    assert case["config"]["schedule"] == {"kind": "wave", "experts_per_wave": 16, "placement": "even"}
    (ratio,) = first["interleaved_over_wave"]
    assert ratio["emulated"] > 0
    assert first["d_knee_rows"] == pytest.approx(128 * 132 / (2 * 2048))


def test_a_gpu_run_stands_beside_its_predictions(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = use(monkeypatch, ScriptedGpu())
    found = emulated(run_cli, *SMALL, "--device", "cuda", "--repeats", "2")
    assert found["device"].startswith("emulation on NVIDIA H200")
    for case in found["cases"]:
        assert abs(case["simulated_error_pct"]["makespan"]) < 5
        assert case["closed_form_error_pct"]["makespan"] is not None
    assert gpu.closed
    assert gpu.labels == [found["run_id"]]


def test_the_table_has_every_schedule_and_the_ratio(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ScriptedGpu())
    shown = run_cli("emulate", *SMALL, "--repeats", "2").stdout
    for part in (
        "wave of 16",
        "interleaved D=",
        "alternating",
        "T_RS mean",
        "interleaved over wave",
        "[0.0%]",
    ):
        assert part in shown


def test_attention_shows_its_residual(run_cli: RunCli) -> None:
    shown = run_cli("emulate", *FA, *SIMULATED).stdout
    for part in (
        "sequential",
        "rotated",
        "spread",
        "own-last",
        "no remote stores",
        "residual E_res",
        "equations 18, 19",
    ):
        assert part in shown
    coupled = run_cli("emulate", *FA, *SIMULATED, "--completion-coupled").stdout
    assert "completion-coupled" in coupled
    assert "equation 17" in coupled
    layer = run_cli("emulate", *SMALL, *SIMULATED, "--completion-coupled").stdout
    assert "equation 17 with T_lat = 800.0 ns (assumed); it leaves out that a run of bursts" in layer


@pytest.mark.usefixtures("few_configs")
def test_a_skeleton_stands_beside_the_kernel_that_search_simulates(run_cli: RunCli) -> None:
    """Operands that wait behind stores are what tells the two apart."""
    keys = ("--set", "tokens_per_rank=512", "--set", "precision=w4a8")  # of which there is no kernel
    layer = ("-w", "megamoe/deepseek-v3", *keys, "-p", "h200-peer")
    found = emulated(run_cli, *layer, *SIMULATED)
    searched = json.loads(run_cli("search", *layer, "--trials", "3", "--format", "json").stdout)
    wave = next(case for case in found["cases"] if case["schedule"] == "wave")
    assert wave["config"] == searched["default"]["config"]
    assert wave["as_kernel_ns"] == pytest.approx(searched["default"]["objective_ns"], rel=0.01)
    assert wave["as_kernel_ns"] > 1.02 * wave["emulated"]["makespan_ns"]
    assert "as a kernel" in run_cli("emulate", *layer, *SIMULATED).stdout
    # The paper's platform does not tell how Q is divided.
    on_paper = emulated(run_cli, *layer[:4], "-p", "paper-nvlink5", *SIMULATED)
    assert {case["as_kernel_ns"] for case in on_paper["cases"]} == {None}


def test_a_lead_sweep_is_a_line_a_value_with_the_knee(run_cli: RunCli) -> None:
    shown = run_cli("emulate", *SMALL, *SIMULATED, "--sweep", "lead=1..6").stdout
    assert "D_knee <= 5" in shown  # 4.1 rows
    assert "D_knee = 4.1 rows (equation 16)" in shown
    assert "dependency wait" in shown
    found = emulated(run_cli, *SMALL, *SIMULATED, "--sweep", "lead=1..6")
    assert [case["value"] for case in found["cases"]] == [1, 2, 3, 4, 5, 6]
    assert found["sweep"] == {"key": "lead", "values": [1, 2, 3, 4, 5, 6]}


def test_a_token_sweep_of_attention_marks_where_the_residual_ends(run_cli: RunCli) -> None:
    shown = run_cli("emulate", *FA, *SIMULATED, "--sweep", "tokens=1024,8192").stdout
    assert "M*_ub <= 8192" in shown
    assert "T_FA" in shown
    found = emulated(run_cli, *FA, *SIMULATED, "--sweep", "tokens=1024,8192")
    assert [(one["label"], one["value"]) for one in found["residual_ns"]] == [
        ("rotated, tokens=1024", 1024),
        ("rotated, tokens=8192", 8192),
    ]


@pytest.mark.parametrize("sweep", ["remote_fraction=0,0.5", "staging_depth=1..3", "tokens=32,64"])
def test_a_sweep_of_a_layer_has_every_schedule_at_each_value(run_cli: RunCli, sweep: str) -> None:
    found = emulated(run_cli, *SMALL, *SIMULATED, "--sweep", sweep)
    values = found["sweep"]["values"]
    assert [case["value"] for case in found["cases"]] == [value for value in values for _ in range(3)]
    assert [ratio["value"] for ratio in found["interleaved_over_wave"]] == values
    assert run_cli("emulate", *SMALL, *SIMULATED, "--sweep", sweep).exit_code == 0


def test_a_config_file_is_compared_with_the_usual_schedules(run_cli: RunCli, tmp_path: Path) -> None:
    config = megamoe_config(Schedule(kind="clamped-lag"), block_m=64, staging_depth=3, store_flavour="tma")
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(config_keys(config)))
    found = emulated(run_cli, *SMALL, *SIMULATED, "--config", str(tmp_path / "mine.toml"))
    assert [case["schedule"] for case in found["cases"]] == [
        "clamped-lag", "wave", "interleaved", "alternating",
    ]  # fmt: skip
    assert {case["config"]["staging_depth"] for case in found["cases"]} == {3}
    assert {case["config"]["store_flavour"] for case in found["cases"]} == {"tma"}


@pytest.mark.usefixtures("few_configs")
def test_a_study_s_answer_is_emulated(run_cli: RunCli) -> None:
    search = ("--platform", "h200-host", "--trials", "3", "--format", "json")
    study = json.loads(run_cli("search", *SMALL, *search).stdout)
    found = emulated(run_cli, *SMALL, *SIMULATED, "--config", f"study:{study['study_id']}")
    assert found["config"] == study["best"]["config"]


def test_options_reach_the_skeletons(run_cli: RunCli) -> None:
    options = (
        "--schedule", "alternating", "--placement", "both", "--store-flavour", "tma", "--staging-depth", "4",
        "--tile-ns", "l1=9000,l2=5000,epilogue=0", "--no-dependencies", "--seed", "3",
    )  # fmt: skip
    found = emulated(run_cli, *SMALL, *SIMULATED, *options)
    assert [case["label"] for case in found["cases"]] == ["alternating", "alternating, by share"]
    assert found["given"] == {"l1_ns": 9000.0, "l2_ns": 5000.0, "epilogue_ns": 0.0}
    assert (found["dependencies"], found["seed"], found["config"]["staging_depth"]) == (False, 3, 4)
    assert all(case["emulated"]["dependency_wait_ns"] == 0 for case in found["cases"])


def test_all_schedules(run_cli: RunCli) -> None:
    found = emulated(run_cli, *SMALL, *SIMULATED, "--schedule", "all")
    assert len(found["cases"]) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "--workload is missing"),
        (("--workload", "megamoe/deepseek-v4"), 2, "unknown workload 'megamoe/deepseek-v4'"),
        ((*SMALL, "--config", "absent.toml"), 2, "cannot read absent.toml"),
        ((*SMALL, "--config", "study:none"), 2, "no study 'none'"),
        ((*SMALL, "--schedule", "waves"), 2, "waves"),
        ((*SMALL, "--schedule", "spread"), 2, "--schedule spread does not fit"),
        ((*FA, "--schedule", "wave"), 2, "--schedule wave does not fit"),
        ((*FA, "--staging-depth", "2"), 2, "--staging-depth does not fit"),
        ((*FA, "--placement", "share"), 2, "--placement does not fit"),
        ((*FA, "--no-dependencies"), 2, "--no-dependencies does not fit"),
        ((*SMALL, "--platform", "paper-nvlink5", "--placement", "both"), 2, "has no shares of its SMs"),
        ((*SMALL, "--sweep", "staging_depth=1..2", "--sweep", "tokens=64"), 2, "--sweep is given 2 times"),
        ((*SMALL, "--staging-depth", "99"), 2, "99 staging slots do not fit the shared memory"),
        ((*SMALL, "--staging-depth", "0"), 2, "--staging-depth: should be"),
        ((*SMALL, "--staging-depth", "10000000"), 2, "--staging-depth: should be"),
        ((*SMALL, "--tile-ns", "l1=0,l2=5"), 2, "a mainloop of 0 ns cannot be spun"),
        ((*SMALL, "--tile-ns", "l1=9e9,l2=5"), 2, "longer than the deadline of a spin"),
        ((*SMALL, "--sweep", "lead=4..1"), 2, "runs backwards"),
        ((*SMALL, "--sweep", "lead=1..4", "--schedule", "wave"), 2, "of the interleaved schedule"),
        ((*FA, "--sweep", "lead=1..4"), 2, "'lead' cannot be swept, only remote_fraction"),
        ((*SMALL, "--repeats", "0"), 2, "greater than or equal to 1"),
        ((*SMALL, "--set", "tokens_per_rank=0"), 2, "tokens_per_rank"),
        ((*SMALL, "--path", "peer"), 2, "none of your own fits on path 'peer': h200-host (host)"),
        ((*SMALL, "--path", "local"), 3, "no path 'local'"),
        ((*SMALL, "--platform", "h300"), 2, "unknown platform 'h300'"),
        ((*SMALL, "--record", "run.xsrec"), 2, "must end in .xsemu"),
        ((*SMALL, "--device", "tpu"), 2, "--device 'tpu' is unknown"),
        ((*SMALL, "--device", "replay:./absent.xsemu"), 2, "takes no --workload, --set"),
        (("--device", "replay:./absent.xsemu"), 2, "no recording at absent.xsemu"),
    ],
)
def test_bad_arguments_are_one_clear_complaint(
    run_cli: RunCli, arguments: tuple[str, ...], code: int, words: str
) -> None:
    device = () if "--device" in arguments else ("--device", "simulator")
    result = run_cli("emulate", *device, *arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_config_of_another_kind_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "fa.toml").write_text(tomli_w.dumps(config_keys(attention_config())))
    result = run_cli("emulate", *SMALL, *SIMULATED, "--config", str(tmp_path / "fa.toml"))
    assert result.exit_code == 2
    assert "a config of kind 'attention' does not fit" in result.stderr


def no_gpu(*_: object) -> None:
    raise DeviceError("no NVIDIA driver", "--device simulator")


def test_without_a_gpu_cuda_says_what_works(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    from xstage_tune.cuda.gpu import Gpu

    def refuse(_: int) -> None:
        raise DeviceError("no NVIDIA driver", "install it")

    monkeypatch.setattr(Gpu, "open", refuse)
    result = run_cli("emulate", *SMALL, "--device", "cuda")
    assert result.exit_code == 3
    assert "no NVIDIA driver" in result.stderr
    assert "--device simulator" in result.stderr
    assert "--device replay" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("--sweep", "heads=1,2"), ("--tile-ns", "l1=0,l2=5"), ("--set", "tokens_per_rank=0"),
        ("--platform", "h300"), ("--config", "absent.toml"),
    ],
)  # fmt: skip
def test_what_is_wrong_whatever_the_gpu_is_found_before_one_is_looked_for(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str]
) -> None:
    monkeypatch.setattr(opener, "open_cuda", no_gpu)
    assert run_cli("emulate", *SMALL, *wrong, "--device", "cuda").exit_code == 2


def test_auto_without_a_gpu_simulates_and_says_so(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opener, "open_cuda", no_gpu)
    result = run_cli("emulate", *SMALL, "--repeats", "1", "--format", "json")
    assert result.exit_code == 0
    assert "no NVIDIA driver; simulating" in result.stderr
    assert json.loads(result.stdout)["device"] == "simulator"


def test_a_gpu_that_was_never_calibrated_says_how(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tests.h200 import H200

    use(monkeypatch, ScriptedGpu(description=replace(H200, name="NVIDIA B300")))
    result = run_cli("emulate", *SMALL)
    assert result.exit_code == 2
    assert "none of your own is of this GPU, NVIDIA B300" in result.stderr
    assert "xstage-tune calibrate" in result.stderr


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA H800", "NVIDIA H200 NVL"])
def test_another_gpu_s_platform_is_refused_unless_forced_and_then_marked(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from dataclasses import replace

    from tests.h200 import H200

    use(monkeypatch, ScriptedGpu(description=replace(H200, name=name)))
    arguments = ("emulate", *SMALL, "--repeats", "1", "--platform", "h200-host")
    refused = run_cli(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"name NVIDIA H200, not {name}" in refused.stderr
    assert "--force" in refused.stderr
    forced = run_cli(*arguments, "--force", "--format", "json")
    assert forced.exit_code == 0
    assert f"name NVIDIA H200, not {name}" in json.loads(forced.stdout)["other_gpu"]
    assert f"name NVIDIA H200, not {name}" in forced.stderr
    with Store.open() as store:
        assert name in store.run().parameters["other_gpu"]
    assert f"name NVIDIA H200, not {name}" in run_cli(*arguments, "--force").stdout


def test_a_gpu_of_fewer_sms_cannot_be_forced(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tests.h200 import H200

    use(monkeypatch, ScriptedGpu(description=replace(H200, name="NVIDIA H20", sm_count=78)))
    result = run_cli("emulate", *SMALL, "--platform", "h200-host", "--force")
    assert result.exit_code == 2
    assert "132 SMs, NVIDIA H20 has 78" in result.stderr


def test_a_recorded_run_replays_number_for_number(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedGpu())
    file = tmp_path / "run.xsemu"
    live = emulated(run_cli, *SMALL, "--repeats", "3", "--record", str(file))
    replayed = emulated(run_cli, "--device", f"replay:{file}")
    assert replayed.pop("device") == live.pop("device") + ", replayed"
    for result in (live, replayed):
        del result["run_id"]
    assert replayed == live
    assert file.stat().st_size < 300_000
    again = run_cli("emulate", *SMALL, "--record", str(file))
    assert again.exit_code == 2
    assert "exists" in again.stderr


def test_every_launch_is_kept_and_shown_by_trace_and_report(
    run_cli: RunCli, tmp_path: Path, own_store: Path
) -> None:
    found = emulated(run_cli, *SMALL, *SIMULATED)
    with Store.open(own_store) as opened:
        run = opened.run()
        assert (run.id, run.kind, run.status) == (found["run_id"], "emulate", "finished")
        launches = opened.launches(run.id)
        assert len(launches) == 6
        assert all(len(launch.table().spans) > 0 for launch in launches)
        stored = [launch.measured["makespan_ns"] for launch in launches if launch.measured]
        assert sorted(stored) == sorted(ns for case in found["cases"] for ns in case["samples_ns"])
        assert opened.check().problems == ()
    trace, page = tmp_path / "run.json.gz", tmp_path / "run.html"
    assert run_cli("trace", "--run", "latest", "-o", str(trace)).exit_code == 0
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = {event["name"] for event in events if event["pid"] == 1 and event["ph"] == "X"}
    assert "alternating, repeat 1, st.v4 to host" in names
    tiles = {"Linear-1 mainloop", "Linear-2 mainloop", "Linear-2 issue, remote stores"}
    assert tiles <= {event["name"] for event in events}
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    shown = Page(page.read_text())
    assert shown.fetched == []
    for part in ("Schedules", "Timelines", "Span distributions", "wave of 16", found["run_id"]):
        assert part in page.read_text()


def test_a_sweep_s_page_has_its_figure(run_cli: RunCli, tmp_path: Path) -> None:
    emulated(run_cli, *FA, *SIMULATED, "--sweep", "tokens=1024,8192")
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    assert "sweep of tokens" in page.read_text()
    assert "equation 20" in page.read_text()


def test_data_that_did_not_arrive_fail_the_run(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    use(monkeypatch, ScriptedGpu(mismatched_bytes=16))
    result = run_cli("emulate", *SMALL)
    assert result.exit_code == 1
    assert "16 of 4096 bytes did not arrive on path 'host'" in result.stderr
    with Store.open(own_store) as opened:
        assert opened.run().status == "failed"


def test_interrupt_keeps_what_was_measured(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    gpu = use(monkeypatch, ScriptedGpu(after=4, happening=interrupt))
    recording = tmp_path / "run.xsemu"
    result = run_cli("emulate", *SMALL, "--record", str(recording))
    assert result.exit_code == 130
    assert "4 launches are kept in run emu-" in result.stderr
    assert ", and no recording was written\n" in result.stderr
    assert not recording.exists()
    assert gpu.closed
    with Store.open(own_store) as opened:
        run = opened.run()
        assert run.status == "interrupted"
        assert len(opened.launches(run.id)) == 4
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest-any", "-o", str(page)).exit_code == 0
    assert "interrupted" in page.read_text()


@pytest.mark.parametrize(
    ("number", "code", "status"),
    [
        (signal.SIGKILL, -9, "stale"),
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "interrupted"),
    ],
    ids=["kill", "ctrl-c", "sigterm"],
)
def test_a_process_that_is_stopped_loses_nothing(
    tmp_path: Path, number: signal.Signals, code: int, status: str
) -> None:
    store = tmp_path / "stopped.db"
    process = start(tmp_path, "tests.emulation.scripted", str(store), "0.02")
    wait_for_launches(store, 3)
    process.send_signal(number)
    _, stderr = process.communicate(30)
    assert process.returncode == code
    assert "Traceback" not in stderr
    with Store.open(store) as opened:
        run = opened.run()
        assert run.status == status
        assert status == "stale" or run.error == f"interrupted by {'SIGTERM' if code == 143 else 'the user'}"
        assert len(opened.launches(run.id)) >= 3
        assert opened.check().problems == ()
