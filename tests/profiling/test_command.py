"""``profile`` as a user meets it: results, refusals, and what is kept when it goes wrong."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.configs.cases import attention_config, megamoe_config
from tests.conftest import RunCli, without_choice
from tests.h200 import H200
from tests.processes import interrupt
from tests.profiling.gpu import SMALL, ScriptedProfiles, use
from tests.report.pages import Page
from xstage_tune.base.errors import DeviceError
from xstage_tune.families.attention_a2a.timing import IMPLEMENTATIONS, Implementation
from xstage_tune.families.config_files import config_keys
from xstage_tune.platforms.loader import load_platform
from xstage_tune.store.facade import Store

QUICK = ("--repeats", "2")


def profiled(run_cli: RunCli, *arguments: str) -> dict[str, Any]:
    """The JSON of a profile run that succeeds."""
    result = run_cli("profile", *arguments, "--format", "json")
    assert (result.exit_code, without_choice(result.stderr)) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_has_every_implementation_and_prediction(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = use(monkeypatch, ScriptedProfiles())
    found = profiled(run_cli, *SMALL, "--repeats", "3")
    assert (found["workload"], found["platform"], found["path"]) == ("fa-a2a/paper", "h200-host", "host")
    assert found["workload_keys"]["tokens"] == 1024
    assert (found["sweep"], found["residual_ends_tokens"], found["throttled_launches"]) == (None, None, 0)
    (point,) = found["points"]
    assert (point["tokens"], point["heads"], point["ranks"], point["remote_ranks"]) == (1024, 4, 8, 8)
    assert set(point["implementations"]) == set(IMPLEMENTATIONS)
    fused = point["implementations"]["fused"]
    assert len(fused["samples_ns"]) == len(fused["beyond_attention_samples_ns"]) == 3
    assert point["recording"]["attention"]["overhead"] == pytest.approx(0.01, rel=1e-2)
    assert point["recording"]["fused"]["overhead"] == pytest.approx(0.04, rel=1e-2)
    assert point["recording"]["fused"]["time_ns"] == pytest.approx(109.2e3, rel=1e-4)
    assert fused["time_ns"] == pytest.approx(105e3, rel=1e-4)
    assert fused["tflop_per_s"] == pytest.approx(4 * 1024**2 * 128 * 4 / 105e-6 / 1e12, rel=1e-3)
    assert point["implementations"]["all-to-all"]["tflop_per_s"] is None
    assert point["against"]["serial-permute"]["hiding_ratio"] == pytest.approx(0.9, abs=1e-3)
    assert point["against"]["serial-direct"]["speedup"] == pytest.approx(120 / 105, rel=1e-3)
    assert point["ideal_speedup"] == pytest.approx(1.2, rel=1e-3)
    assert point["checks"]["attention"]["relative_error"] == 0.002
    beside = point["predicted_beside_measured"]
    assert beside.keys() == {
        "issue_ns", "q_loop_ns", "issue_overhead_ns", "converged_tokens", "residual_ns", "hiding_ratio",
    }  # fmt: skip
    assert beside["issue_overhead_ns"]["measured"] == pytest.approx(900)
    assert beside["residual_ns"]["measured"] == pytest.approx(5000, abs=10)
    for quantity in ("closed_form", "simulated", "completion_coupled"):
        assert beside["residual_ns"][quantity] is not None
    # One round: nothing covers the latency of its visibility.
    coupled_ns, closed_ns = (beside["residual_ns"][one] for one in ("completion_coupled", "closed_form"))
    assert coupled_ns - closed_ns == pytest.approx(800)
    assert point["spans"]["fused"]["q_loop"]["p50_ns"] == pytest.approx(9000)
    assert gpu.labels == [found["run_id"]]
    assert gpu.closed


def test_the_table_has_what_was_measured_and_predicted(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles(throttled=True))
    shown = run_cli("profile", *SMALL, *QUICK).stdout
    for part in (
        "attention alone", "serial, copy engine", "fused is faster", "H of fused", "T_RS of a tile",
        "signalled and received", "G_Qloop", "M*_ub", "completion-coupled", "Q-loop",
        "wait for a staging slot", "clocks were held down in 79 of 79", "What recording spans costs",
    ):  # fmt: skip
        assert part in shown
    assert "median of 2 blocks" in shown
    assert "too few for an interval, which takes six" in shown
    fused = next(line for line in shown.splitlines() if line.startswith("fused"))
    assert "[" not in fused
    (costs,) = [line.split() for line in shown.splitlines() if line.lstrip().startswith("1024")]
    assert [part for part in costs if "%" in part] == ["1.0%", "4.0%"]


def test_six_blocks_have_an_interval(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ScriptedProfiles())
    shown = run_cli("profile", *SMALL, "--repeats", "6").stdout
    fused = next(line for line in shown.splitlines() if line.startswith("fused"))
    assert re.search(r"5\.\d+ us \[[45]\.\d\d, 5\.\d\d\]", fused)
    assert "median of 6 blocks" in shown
    assert "of at least 95% confidence" in shown


@pytest.mark.parametrize(
    # 7 checks; 7 alone, then blocks of 4: direct, copy, permute, fused, received, two that record; 7 alone,
    # then copy, permute, fused, ...
    ("stopped", "blocks"),
    [(7, 0), (14 + 15, 0), (14 + 16, 1), (14 + 28 + 7 + 12, 2)],
)
def test_a_page_says_how_many_blocks_an_interrupted_run_came_to(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: int, blocks: int
) -> None:
    use(monkeypatch, ScriptedProfiles(after=stopped, happening=interrupt))
    assert run_cli("profile", *SMALL, "--repeats", "3").exit_code == 130
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest-any", "-o", str(page)).exit_code == 0
    text = Page(page.read_text(encoding="utf-8")).text
    assert f"median of {blocks} blocks" in text
    assert ("the fused kernel takes" in text) is bool(blocks)
    assert (f"median of {blocks}, too few for an interval" in text) is bool(blocks)


def test_a_sweep_is_a_line_a_value_and_a_figure(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ScriptedProfiles())
    sweep = (*SMALL, *QUICK, "--sweep", "tokens=1024,2048,8192")
    found = profiled(run_cli, *sweep)
    assert [point["value"] for point in found["points"]] == [1024, 2048, 8192]
    assert found["sweep"] == {"key": "tokens", "values": [1024, 2048, 8192]}
    shown = run_cli("profile", *sweep).stdout
    for part in (
        "M*_ub <= 8192",
        "What recording spans costs",
        "E_res = T_fused - T_FA",
        "equations 18, 19",
        "completion-coupled",
        "tokens M",
    ):
        assert part in shown


def test_a_config_and_options_reach_the_device(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = use(monkeypatch, ScriptedProfiles())
    config = attention_config(block_m=192, block_n=80, output_staging="alias-q")
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(config_keys(config)))
    found = profiled(
        run_cli, *SMALL, *QUICK, "--config", str(tmp_path / "mine.toml"), "--seed", "4", "--path", "host"
    )
    assert found["config"] == config_keys(config)
    assert (found["seed"], found["repeats"]) == (4, 2)
    assert len(gpu.asked) == 7 + 2 * (7 + 7 * 4) + 2


def test_the_local_control_has_no_prediction(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ScriptedProfiles())
    (point,) = profiled(run_cli, *SMALL, *QUICK, "--path", "local")["points"]
    beside = point["predicted_beside_measured"]["residual_ns"]
    assert beside["measured"] is not None
    assert beside["closed_form"] is None
    assert "Predicted" not in run_cli("profile", *SMALL, *QUICK, "--path", "local").stdout


def test_tokens_that_are_all_the_rank_s_own_have_no_prediction(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, ScriptedProfiles())
    sweep = (*SMALL, *QUICK, "--set", "remote_fraction=0.875", "--sweep", "tokens=1,1024")
    one, many = profiled(run_cli, *sweep)["points"]
    beside = [point["predicted_beside_measured"]["residual_ns"] for point in (one, many)]
    assert [figures["closed_form"] is None for figures in beside] == [True, False]
    assert run_cli("profile", *sweep).exit_code == 0
    page = run_cli("report", "--run", "latest", "-o", str(tmp_path / "run.html"))
    assert (page.exit_code, page.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "--workload is missing"),
        (("--workload", "megamoe/hy3-preview", "--set", "precision=w4a8"), 2, "no MoE kernel of w4a8 yet"),
        (("--workload", "fa-a2a/none"), 2, "unknown workload 'fa-a2a/none'"),
        ((*SMALL, "--set", "tokens=0"), 2, "tokens"),
        ((*SMALL, "--set", "heads=30"), 2, "heads = 30 is not divisible by degree = 8"),
        ((*SMALL, "--set", "remote_fraction=0.3"), 2, "no whole number of ranks"),
        ((*SMALL, "--sweep", "tokens=0"), 2, "a whole number from 1 up"),
        ((*SMALL, "--sweep", "remote_fraction=0.5"), 2, "'remote_fraction' cannot be swept, only tokens"),
        ((*SMALL, "--sweep", "tokens=abc"), 2, "for example --sweep tokens=1024,2048,4096\n"),
        ((*SMALL, "--config", "absent.toml"), 2, "cannot read absent.toml"),
        ((*SMALL, "--config", "study:none"), 2, "no study 'none'"),
        ((*SMALL, "--path", "peer"), 2, "none of your own is of this GPU, NVIDIA H200 on path 'peer'"),
        ((*SMALL, "--path", "peer", "--platform", "h200-peer"), 3, "no path 'peer'"),
        ((*SMALL, "--platform", "paper-nvlink5"), 2, "148 SMs"),
        ((*SMALL, "--repeats", "0"), 2, "greater than or equal to 1"),
        ((*SMALL, "--record", "run.xsemu"), 2, "must end in .xsprof"),
        ((*SMALL, "--device", "simulator"), 2, "--device 'simulator' is unknown"),
        ((*SMALL, "--device", "replay:./absent.xsprof"), 2, "takes no --workload, --set"),
        (("--device", "replay:./absent.xsprof"), 2, "no recording at absent.xsprof"),
        (("--device", "replay:none"), 2, "no recording named 'none' is shipped"),
        (("--device", "replay", "--platform", "h200-peer"), 2, "calibrated for path 'peer', not 'host'"),
        (("--device", "replay", "--platform", "none"), 2, "'none'"),
    ],
)
def test_bad_arguments_are_one_clear_complaint(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, words: str
) -> None:
    use(monkeypatch, ScriptedProfiles())
    result = run_cli("profile", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_config_of_another_kind_is_refused(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles())
    (tmp_path / "moe.toml").write_text(tomli_w.dumps(config_keys(megamoe_config())))
    result = run_cli("profile", *SMALL, "--config", str(tmp_path / "moe.toml"))
    assert result.exit_code == 2
    assert "a config of kind 'megamoe' does not fit" in result.stderr


def test_without_a_gpu_the_hint_says_what_works(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    from xstage_tune.cuda.gpu import Gpu

    def refuse(_: int) -> None:
        raise DeviceError("no NVIDIA driver", "install it")

    monkeypatch.setattr(Gpu, "open", refuse)
    for device in ("auto", "cuda"):
        result = run_cli("profile", *SMALL, "--device", device)
        assert result.exit_code == 3
        assert "no NVIDIA driver" in result.stderr
        assert "--device replay" in result.stderr


@pytest.mark.parametrize("sweep", ["lead=1..3", "remote_fraction=0.5", "tokens=abc"])
def test_a_wrong_sweep_is_refused_before_a_gpu_is_looked_for(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, sweep: str
) -> None:
    from xstage_tune.cuda.gpu import Gpu

    def refuse(_: int) -> None:
        raise DeviceError("no NVIDIA driver", "install it")

    monkeypatch.setattr(Gpu, "open", refuse)
    result = run_cli("profile", *SMALL, "--device", "cuda", "--sweep", sweep)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--sweep {sweep}: " in result.stderr


def test_an_older_gpu_is_refused_with_what_is_needed(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xstage_tune.cuda.gpu import Gpu

    old = ScriptedProfiles(description=replace(H200, name="NVIDIA A100", architecture="sm_80"))
    monkeypatch.setattr(Gpu, "open", lambda _: old)
    result = run_cli("profile", *SMALL)
    assert result.exit_code == 3
    assert "NVIDIA A100 is of architecture sm_80: the attention kernel needs sm_90a" in result.stderr
    assert old.closed


def test_too_little_memory_ends_the_run(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = DeviceError("the attention needs 300.00 GiB of GPU memory", "give it fewer tokens")
    gpu = use(monkeypatch, ScriptedProfiles(refuses=refused))
    result = run_cli("profile", *SMALL)
    assert result.exit_code == 3
    assert "needs 300.00 GiB" in result.stderr
    assert gpu.closed


@pytest.mark.parametrize("wrong", ["attention", "serial-copy"])
def test_a_wrong_output_fails_the_run_before_anything_is_timed(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, own_store: Path, tmp_path: Path, wrong: Implementation
) -> None:
    gpu = use(monkeypatch, ScriptedProfiles(wrong=wrong))
    result = run_cli("profile", *SMALL)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"the output of {wrong} is wrong" in result.stderr
    assert "token 7 of rank 0, head 2: not written; 256 of 4,096 bytes" in result.stderr
    assert {what for _, _, what in gpu.asked} == {"check"}
    assert gpu.closed
    with Store.open(own_store) as opened:
        assert opened.run().status == "failed"
        assert opened.launches(opened.run().id)[-1].verification.mismatched_bytes == 256
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest-any", "-o", str(page)).exit_code == 0
    assert "256 B wrong" in page.read_text()
    assert "all implementations equal" not in page.read_text()


def test_a_recorded_run_replays_number_for_number(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles())
    file = tmp_path / "run.xsprof"
    sweep = (*SMALL, *QUICK, "--sweep", "tokens=1024,4096")
    live = profiled(run_cli, *sweep, "--record", str(file))
    replayed = profiled(run_cli, "--device", f"replay:{file}")
    assert replayed.pop("device") == live.pop("device") + ", replayed"
    assert (live.pop("platform_recorded"), replayed.pop("platform_recorded")) == (False, True)
    for result in (live, replayed):
        del result["run_id"]
    assert replayed == live
    again = run_cli("profile", *SMALL, "--record", str(file))
    assert again.exit_code == 2
    assert "exists" in again.stderr


def test_a_recorded_run_is_compared_with_another_calibration(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles())
    file = tmp_path / "run.xsprof"
    (live,) = profiled(run_cli, *SMALL, *QUICK, "--record", str(file))["points"]
    slower = tmp_path / "slower.toml"
    keys = load_platform("h200-host").model_dump(mode="json", exclude_none=True)
    keys["drain"]["bytes_per_s"] /= 2
    del keys["drain"]["ci95"]
    slower.write_text(tomli_w.dumps(keys))
    (point,) = profiled(run_cli, "--device", f"replay:{file}", "--platform", str(slower))["points"]
    assert point["implementations"] == live["implementations"]
    before, after = (one["predicted_beside_measured"]["residual_ns"] for one in (live, point))
    assert after["measured"] == before["measured"]
    assert after["closed_form"] > 1.5 * before["closed_form"]


def test_the_calibration_behind_the_predictions_is_named(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles())
    file, changed = tmp_path / "run.xsprof", tmp_path / "changed.toml"
    keys = load_platform("h200-host").model_dump(mode="json", exclude_none=True)
    keys["drain"]["bytes_per_s"] /= 2
    del keys["drain"]["ci95"]
    changed.write_text(tomli_w.dumps(keys))
    live = run_cli("profile", *SMALL, *QUICK, "--record", str(file)).stdout
    assert "predicted from platform h200-host, nothing refitted" in live
    replay = ("--device", f"replay:{file}")
    recorded = profiled(run_cli, *replay)
    found = {
        shown: profiled(run_cli, *replay, "--platform", which)
        for shown, which in {"same": "h200-host", "other": str(changed)}.items()
    }
    assert [one["platform_recorded"] for one in (recorded, *found.values())] == [True, False, False]
    assert found["same"]["platform_sha256"] == recorded["platform_sha256"]
    assert found["other"]["platform"] == recorded["platform"]
    assert found["other"]["platform_sha256"] != recorded["platform_sha256"]
    shown = run_cli("profile", *replay).stdout
    assert "predicted from platform h200-host, the one recorded, nothing refitted" in shown
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    assert "platform h200-host, the one recorded" in Page(page.read_text(encoding="utf-8")).text
    keys["name"] = "mine"
    changed.write_text(tomli_w.dumps(keys))
    shown = run_cli("profile", *replay, "--platform", str(changed)).stdout
    assert "predicted from platform mine, nothing refitted" in shown


def test_a_sweep_names_the_calibration_behind_its_predictions(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles())
    sweep = (*SMALL, *QUICK, "--sweep", "tokens=1024,2048")
    assert "predicted from platform h200-host, nothing" in run_cli("profile", *sweep).stdout
    assert "from platform" not in run_cli("profile", *sweep, "--path", "local").stdout


def test_every_launch_is_kept_and_shown_by_trace_and_report(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    use(monkeypatch, ScriptedProfiles())
    found = profiled(run_cli, *SMALL, *QUICK)
    with Store.open(own_store) as opened:
        run = opened.run()
        assert (run.id, run.kind, run.status) == (found["run_id"], "profile", "finished")
        launches = opened.launches(run.id)
        assert len(launches) == 7 + 2 * (7 + 7 * 4) + 2
        stored = [one.measured["time_ns"] for one in launches if one.measured and "time_ns" in one.measured]
        implementations, recording = (found["points"][0][key] for key in ("implementations", "recording"))
        shown = [time_ns for one in implementations.values() for time_ns in one["samples_ns"]]
        for one in (*implementations.values(), *recording.values()):
            shown += [
                time_ns for block in one["compared"] for times_ns in block.values() for time_ns in times_ns
            ]
        assert sorted(stored) == sorted(shown)
        before, first, second, behind = stored[7:11]
        direct = implementations["serial-direct"]
        assert direct["compared"][0] == {"own_ns": [first, second], "reference_ns": [before, behind]}
        assert direct["beyond_attention_samples_ns"][0] == (first + second - before - behind) / 2
        assert opened.check().problems == ()
    trace, page = tmp_path / "run.json.gz", tmp_path / "run.html"
    assert run_cli("trace", "--run", "latest", "-o", str(trace)).exit_code == 0
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = {event["name"] for event in events if event["pid"] == 1 and event["ph"] == "X"}
    assert names == {"attention, st.v4 to local", "fused, st.v4 to host"}
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"CTA 0 warpgroup 0", "CTA 31 warpgroup 1"} <= threads
    untraced = run_cli("trace", "--run", "latest", "--launch", "7", "-o", str(tmp_path / "no.json.gz"))
    assert untraced.exit_code == 2
    assert "recorded no spans" in untraced.stderr
    assert "try: leave out --launch" in untraced.stderr
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    shown = Page(page.read_text())
    assert shown.fetched == []
    for part in (
        "Implementations",
        "Span distributions",
        "serial, copy engine",
        found["run_id"],
        "75.0% of whose All-to-All it hides",
    ):
        assert part in page.read_text()


def test_a_split_tile_is_shown_by_the_ctas_that_store_it(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    """32 tiles for 66 teams: 64 CTAs, each of which stores 64 rows of 256 bytes."""
    use(monkeypatch, ScriptedProfiles())
    config = attention_config(output_staging="dedicated-x1", kv_splits=2)
    (tmp_path / "split.toml").write_text(tomli_w.dumps(config_keys(config)))
    found = profiled(run_cli, *SMALL, *QUICK, "--config", str(tmp_path / "split.toml"))
    assert found["config"]["kv_splits"] == 2
    with Store.open(own_store) as opened:
        points = [one.point for one in opened.launches(found["run_id"])]
    assert {point["remote_tile_bytes"] for point in points} == {0, 64 * 256}
    trace, page = tmp_path / "run.json.gz", tmp_path / "run.html"
    assert run_cli("trace", "--run", "latest", "-o", str(trace)).exit_code == 0
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"CTA 0 warpgroup 0", "CTA 63 warpgroup 0"} <= threads
    assert not any("warpgroup 1" in name for name in threads)
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    assert "KV in 2 parts" in page.read_text()


def test_a_sweep_s_page_has_its_figure_and_every_value(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, ScriptedProfiles())
    profiled(run_cli, *SMALL, *QUICK, "--sweep", "tokens=1024,8192")
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    for part in ("Sweep", "<svg", "8,192 tokens", "Predicted"):
        assert part in page.read_text()


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (0, "interrupted before the first launch\n  try: run the same command again\n"),
        (3, "interrupted: 3 launches are kept in run pro-"),
    ],
)
def test_an_interrupt_speaks_of_no_recording_where_none_was_asked_for(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, after: int, words: str
) -> None:
    use(monkeypatch, ScriptedProfiles(after=after, happening=interrupt))
    result = run_cli("profile", *SMALL)
    assert result.exit_code == 130
    assert words in result.stderr
    assert "recording" not in result.stderr


def test_interrupt_keeps_what_was_measured(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    gpu = use(monkeypatch, ScriptedProfiles(after=9, happening=interrupt))
    recording = tmp_path / "run.xsprof"
    result = run_cli("profile", *SMALL, "--record", str(recording))
    assert result.exit_code == 130
    assert "9 launches are kept in run pro-" in result.stderr
    assert ", and no recording was written\n" in result.stderr
    assert not recording.exists()
    assert gpu.closed
    with Store.open(own_store) as opened:
        run = opened.run()
        assert run.status == "interrupted"
    assert f"try: xstage-tune report --run {run.id} -o FILE.html shows" in result.stderr
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest-any", "-o", str(page)).exit_code == 0
    assert "interrupted" in page.read_text()
    for launch in ((), ("--launch", "1")):
        refused = run_cli("trace", "--run", "latest-any", *launch, "-o", str(tmp_path / "run.json.gz"))
        assert refused.exit_code == 2
        assert "recorded no spans" in refused.stderr
        assert refused.stderr.endswith("try: profile again\n")
