"""The page of a study: what it says, what it shows, and what it refuses."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RunCli
from tests.report.conftest import TRIALS, Kept
from tests.report.pages import Page, plain
from xstage_tune.base.errors import UsageError
from xstage_tune.base.number_format import duration
from xstage_tune.experiments.study import (
    Simulations,
    analyse,
    line_lengths,
    predicted_residuals,
    simulated_residuals,
)
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.kernel_launch import OTHER_GPU
from xstage_tune.platforms.loader import load_platform, save_platform
from xstage_tune.report.figure import Panel, TrackPanel
from xstage_tune.report.run_trace import traced_answer
from xstage_tune.report.study_figures import cuts_table, history_plate
from xstage_tune.report.study_page import render_study
from xstage_tune.search.study_case import StudyCase, load_study
from xstage_tune.store.facade import Store


def page_of(study: StudyCase) -> str:
    return render_study(analyse(study))


@pytest.fixture
def moe(store: Store, kept: Kept) -> StudyCase:
    return load_study(store, kept.moe)


@pytest.fixture
def attention(store: Store, kept: Kept) -> StudyCase:
    return load_study(store, kept.attention)


@pytest.fixture(params=["moe", "attention"])
def study(request: pytest.FixtureRequest) -> StudyCase:
    found: StudyCase = request.getfixturevalue(request.param)
    return found


def test_page_is_one_file_that_fetches_nothing_and_is_the_same_each_time(study: StudyCase) -> None:
    text = page_of(study)
    assert Page(text).fetched == []
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)
    assert text == page_of(study)


def test_page_tells_workload_platform_answer_and_bound_in_words(study: StudyCase) -> None:
    text = Page(page_of(study)).text
    result = study.result
    for said in (
        study.workload.name,
        study.platform.gpu.name,
        result.best.config.label if result.beats_default else "keep it",
        plain(duration(result.best.objective_ns)),
        plain(duration(result.default.objective_ns)),
        plain(duration(result.bound_ns)),
        f"Stopped: {result.stopped}",
    ):
        assert said in text
    assert re.search(r"Default: (reshape|piggyback)\.", text)


def test_page_and_trace_say_on_what_its_figures_rest(attention: StudyCase) -> None:
    """The paper's GPU was measured by others; a platform may have been forced on another GPU."""
    assert "compute: published" in Page(page_of(attention)).text.lower()
    forced = f"emulation on NVIDIA H20{OTHER_GPU}sm_count 132, not 78"
    study = replace(attention, result=replace(attention.result, device=forced))
    assert "forced on this one: sm_count 132, not 78" in Page(page_of(study)).text
    case = Simulations(study.workload, study.platform).case(study.answer)
    marks = traced_answer(study, case).args["marks"]
    assert [any(said in mark for mark in marks) for said in ("published", "not 78")] == [True, True]


def test_figures_are_numbered_in_order(study: StudyCase) -> None:
    numbers = [int(number) for number in re.findall(r"Figure (\d+)\.", Page(page_of(study)).text)]
    residual = isinstance(study.workload, AttentionWorkload)
    assert numbers == list(range(1, 7 if residual else 6))


def test_every_cut_is_listed_with_its_numbers_and_they_add_up(study: StudyCase) -> None:
    table = cuts_table(study.result)
    listed = {row[0]: (int(row[1].replace(",", "")), row[3]) for row in table.rows}
    for cut in study.result.cuts:
        assert listed[cut.reason] == (cut.configs, cut.detail)
    total = sum(count for count, _ in listed.values())
    assert table.title == f"What removed the other {total - study.result.evaluations:,} configs"


def test_waterfall_steps_from_the_whole_space_down_to_what_ran(study: StudyCase) -> None:
    panel = history_plate(study).panels[1]
    assert isinstance(panel, TrackPanel)
    steps = {
        int(track): (begin, end)
        for bars in panel.bars
        for track, begin, end in zip(bars.track, bars.begin, bars.end, strict=True)
    }
    assert sorted(steps) == list(range(len(panel.tracks)))
    total = steps[0][1]
    left = total
    for track in range(1, len(panel.tracks) - 1):
        assert steps[track][1] == left
        left = steps[track][0]
    assert steps[len(panel.tracks) - 1] == (0, left)
    assert left == study.result.evaluations


def test_history_has_every_evaluation_once_at_or_above_the_bound(study: StudyCase) -> None:
    panel = history_plate(study).panels[0]
    assert isinstance(panel, Panel)
    marks = [series for series in panel.series if series.mark in ("points", "hollow")]
    numbers = np.sort(np.concatenate([series.x for series in marks]))
    np.testing.assert_array_equal(numbers, np.arange(1, TRIALS + 1))
    bound = next(series for series in panel.series if series.mark == "dashed").y[0]
    assert all((series.y >= bound).all() for series in marks)
    best = next(series for series in panel.series if series.mark == "line")
    assert (np.diff(best.y) <= 0).all()
    assert best.y[-1] == min(one.objective_ns for one in study.evaluations)


def test_each_chosen_config_has_one_name_and_one_colour(study: StudyCase) -> None:
    chosen = study.chosen()
    assert len({one.config for one in chosen}) == len({one.place for one in chosen}) == len(chosen)
    assert sum(one.answer for one in chosen) == 1
    assert study.answer.config == study.result.best.config


def test_a_wave_stands_beside_another_schedule_and_one_of_them_is_the_answer(moe: StudyCase) -> None:
    pair = moe.contrast()
    assert pair is not None
    kinds = [one.config.model_dump()["schedule"]["kind"] for one in pair]
    assert kinds[0] == "wave"
    assert kinds[1] != "wave"
    assert any(one.answer for one in pair)


def test_where_the_default_wins_it_is_shown_beside_the_best_other_schedule(moe: StudyCase) -> None:
    kept_default = replace(moe, result=replace(moe.result, best=moe.result.default, ties=()))
    pair = kept_default.contrast()
    assert pair is not None
    assert pair[0].answer
    assert pair[0].title == "default, the answer"
    others = [one for one in kept_default.chosen() if not one.answer]
    assert pair[1].config == min(others, key=lambda one: kept_default.objective_ns(one.config)).config
    assert "Nothing surely beats the default" in Page(page_of(kept_default)).text


def test_attention_that_keeps_the_default_shows_both_issuers_of_it(attention: StudyCase) -> None:
    kept_default = replace(
        attention, result=replace(attention.result, best=attention.result.default, ties=())
    )
    assert kept_default.contrast() is None
    assert "completion-coupled" in Page(page_of(kept_default)).text


def test_residual_of_a_coupled_issuer_grows_with_every_tile_and_that_of_the_xstage_one_by_its_issue(
    attention: StudyCase,
) -> None:
    workload, config = attention.workload, attention.result.default.config
    assert isinstance(workload, AttentionWorkload)
    assert isinstance(config, AttentionConfig)
    predicted = predicted_residuals(workload, attention.platform, config, line_lengths(workload.tokens))
    # 14 tiles on the busiest SM at 65,536 tokens: V/R = 6.8 us each less G_QK when coupled (about 120 us in
    # the paper, with latency and without cover), T0 = 0.76 us each when not. Of the last round, 124 tiles of
    # 32 KiB, no Q-loop hides the drain.
    assert predicted.tokens[-1] == pytest.approx(65_536, rel=1e-3)
    assert 80_000 < predicted.coupled_ns[-1] < 120_000
    last_drain_ns = 124 * 32768 / attention.platform.drain.bytes_per_s * 1e9
    assert predicted.xstage_ns[-1] == pytest.approx(13 * 760 + last_drain_ns, rel=1e-3)

    simulated = simulated_residuals(workload, attention.platform, config)
    assert simulated.tokens.tolist() == [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    assert (simulated.xstage_ns < simulated.coupled_ns).all()
    # Launched CTAs drift apart, so that they wait for less than V/R: below the closed form, but as steep
    # against the other issuer.
    growth = [residual[-1] - residual[3] for residual in (simulated.xstage_ns, simulated.coupled_ns)]
    assert growth[1] > 2 * growth[0]


def test_report_writes_the_page_and_says_where(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "study.html"
    ended = run_cli("report", "--study", kept.moe, "-o", str(file), "--store", str(kept.file))
    assert (ended.exit_code, ended.stdout) == (0, f"{file}\n")
    assert "megamoe/deepseek-v4-flash on paper-nvlink5" in Page(file.read_text(encoding="utf-8")).text


def test_latest_is_the_study_begun_last(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "study.html"
    assert run_cli("report", "--study", "latest", "-o", str(file), "--store", str(kept.file)).exit_code == 0
    assert "fa-a2a/paper" in file.read_text(encoding="utf-8")


def test_an_unknown_study_is_an_error(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    ended = run_cli("report", "--study", "none", "-o", str(tmp_path / "x.html"), "--store", str(kept.file))
    assert ended.exit_code == 2
    assert "no study 'none'" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_a_result_says_how_to_finish_it(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    shutil.copy(kept.file, file)
    with Store.open(file) as store:
        known = store.studies.get(kept.moe)
        begun = store.studies.add(
            workload=known.workload, workload_sha256=known.workload_sha256, platform=known.platform,
            platform_sha256=known.platform_sha256, space=known.space, device=known.device,
            objective=known.objective, sampler=known.sampler, seed=known.seed,
        )  # fmt: skip
        store.studies.end(begun, "interrupted")
    ended = run_cli("report", "--study", begun, "-o", str(tmp_path / "x.html"), "--store", str(file))
    assert ended.exit_code == 2
    assert f"study {begun} has no result: it is interrupted" in ended.stderr
    assert f"--resume {begun}" in ended.stderr


def test_a_platform_that_has_changed_since_is_refused(store: Store, kept: Kept, tmp_path: Path) -> None:
    platform = load_platform("paper-nvlink5")
    faster = platform.drain.model_copy(update={"bytes_per_s": 800e9})
    changed, same = tmp_path / "changed.toml", tmp_path / "same.toml"
    save_platform(platform.model_copy(update={"drain": faster}), changed)
    save_platform(platform, same)
    with pytest.raises(UsageError, match="its keys differ"):
        load_study(store, kept.moe, str(changed))
    assert load_study(store, kept.moe, str(same)).platform == platform


def test_a_workload_of_which_nothing_leaves_the_gpu_has_no_design_test(moe: StudyCase) -> None:
    alone = replace(moe, workload=moe.workload.model_copy(update={"remote_fraction": 0.0}))
    text = Page(page_of(alone)).text
    assert "Nothing leaves the GPU" in text
    assert "Span distributions" not in text


def test_a_search_by_stall_shows_stalls_of_zero(moe: StudyCase) -> None:
    objectives = [0.0, *range(1, len(moe.evaluations))]
    evaluations = tuple(
        replace(one, objective_ns=float(ns)) for one, ns in zip(moe.evaluations, objectives, strict=True)
    )
    result = replace(moe.result, objective="stall", bound_ns=0.0)
    panel = history_plate(replace(moe, result=result, evaluations=evaluations)).panels[0]
    assert isinstance(panel, Panel)
    marks = [series for series in panel.series if series.mark in ("points", "hollow")]
    assert sum(series.x.size for series in marks) == len(evaluations)
    assert panel.note == ""
