"""The page of a calibration run, rebuilt from the store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import create_engine, delete, select
from sqlalchemy.orm import Session

from tests.conftest import RunCli
from tests.h200 import H200
from tests.report.conftest import Kept
from tests.report.pages import Page, plain
from tests.store.bursts import make_burst, stored_burst
from xstage_tune.base.errors import FindingError
from xstage_tune.calibration.stored import rebuild_calibration
from xstage_tune.report.calibration_tables import platform_tables
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Fit, Run


@pytest.fixture
def copied(kept: Kept, tmp_path: Path) -> Path:
    """A copy of the store, to be changed."""
    file = tmp_path / "copy.db"
    shutil.copy(kept.file, file)
    return file


@contextmanager
def changing(file: Path) -> Iterator[Session]:
    """A store's rows, behind the facade's back; checksums are as for rows that were written so."""
    engine = create_engine(f"sqlite:///{file}")
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


def test_of_a_run_that_has_measured_nothing_yet_it_is_said_to_wait(run_cli: RunCli, tmp_path: Path) -> None:
    file, page = tmp_path / "store.db", tmp_path / "run.html"
    with Store.open(file) as store, store.begin_run(kind="calibrate", argv=[], device=H200) as run:
        refused = run_cli("report", "--run", run.id, "--store", str(file), "-o", str(page))
        assert (refused.exit_code, page.exists()) == (2, False)
        assert "it is running, in process" in refused.stderr
        assert "calibrate again" not in refused.stderr
        run.add_launch(0, make_burst())


def test_rebuilt_calibration_is_the_one_that_was_concluded(store: Store, kept: Kept) -> None:
    concluded = kept.calibration.result
    rebuilt = rebuild_calibration(store, store.run(kept.calibration.run_id))
    assert rebuilt.platform == concluded.platform
    assert rebuilt.findings == concluded.findings
    assert len(rebuilt.gap_curves) == len(concluded.gap_curves)
    for ours, theirs in zip(rebuilt.gap_curves, concluded.gap_curves, strict=True):
        np.testing.assert_array_equal(ours.issue_ns, theirs.issue_ns)
        np.testing.assert_array_equal(ours.predicted_period_ns, theirs.predicted_period_ns)


def test_page_has_the_panels_every_table_and_how_it_was_made(
    kept: Kept, run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    ended = run_cli("report", "--run", "latest", "-o", str(file), "--store", str(kept.file))
    assert (ended.exit_code, ended.stdout) == (0, f"{file}\n")
    page = Page(file.read_text(encoding="utf-8"))
    assert page.fetched == []
    for table in platform_tables(kept.calibration.result.platform):
        assert all(plain(cell) in page.text for row in table.rows for cell in row)
    for shown in ("Issue time against gap", "Zero-gap period against volume", kept.calibration.run_id):
        assert shown in page.text


def test_a_run_that_did_not_conclude_shows_the_fit_of_its_launches(kept: Kept, copied: Path) -> None:
    run_id = kept.calibration.run_id
    with changing(copied) as session:
        session.execute(delete(Fit).where(Fit.kind == "calibration"))
        run = session.get_one(Run, run_id)
        run.status, run.error = "interrupted", "interrupted by the user"
    with Store.open(copied) as store:
        rebuilt = rebuild_calibration(store, store.run(run_id))
    assert rebuilt.findings[0].code == "run-unfinished"
    assert "interrupted by the user" in rebuilt.findings[0].message
    assert rebuilt.platform.drain == kept.calibration.result.platform.drain


def test_a_conclusion_that_this_version_would_not_draw_is_kept_and_said(kept: Kept, copied: Path) -> None:
    run_id = kept.calibration.run_id
    with Store.open(copied) as store:
        payload = next(row.payload for row in store.fits(run_id) if row.kind == "calibration")
    payload["platform"]["drain"]["bytes_per_s"] = 50e9
    with changing(copied) as session:
        session.scalars(select(Fit).where(Fit.kind == "calibration")).one().payload = payload
    with Store.open(copied) as store:
        rebuilt = rebuild_calibration(store, store.run(run_id))
    assert rebuilt.platform.drain.bytes_per_s == 50e9
    assert rebuilt.findings[-1].code == "fit-changed"


def test_too_few_launches_allow_no_fit(kept: Kept, copied: Path) -> None:
    with Store.open(copied) as store:
        run_id = kept.calibration.run_id
        launch = stored_burst(store.launches(run_id)[0])
        rate = next(row.payload for row in store.fits(run_id) if row.kind == "copy-rate")
        parameters = store.run(run_id).parameters
        with store.begin_run(kind="calibrate", argv=[], device=H200, parameters=parameters) as run:
            run.add_fit("copy-rate", rate)
            run.add_launch(0, launch)
        with pytest.raises(FindingError, match="its 1 launches allow no fit"):
            rebuild_calibration(store, store.run(run.id))


def test_a_run_without_spans_is_an_error(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store.open(file) as store, store.begin_run(kind="calibrate", argv=[], device=H200) as run:
        pass
    for command, name in (("report", "x.html"), ("trace", "x.json.gz")):
        ended = run_cli(command, "--run", run.id, "-o", str(tmp_path / name), "--store", str(file))
        assert ended.exit_code == 2
        assert f"run {run.id} has no spans" in ended.stderr


def test_a_run_of_another_kind_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store.open(file) as store, store.begin_run(kind="search", argv=[], device=H200) as run:
        pass
    ended = run_cli("report", "--run", run.id, "-o", str(tmp_path / "x.html"), "--store", str(file))
    assert ended.exit_code == 2
    assert "of kind 'search'" in ended.stderr


@pytest.mark.parametrize("run_id", ["latest", "none"])
def test_an_unknown_run_is_an_error(run_cli: RunCli, tmp_path: Path, run_id: str) -> None:
    store = tmp_path / "s.db"
    Store.open(store).close()
    for command, name in (("report", "x.html"), ("trace", "x.json.gz")):
        ended = run_cli(command, "--run", run_id, "-o", str(tmp_path / name), "--store", str(store))
        assert ended.exit_code == 2
        assert "has no" in ended.stderr
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("command", "suffix"), [("report", ".html"), ("trace", ".json.gz")])
def test_a_target_is_checked_before_the_store_is_opened(
    run_cli: RunCli, tmp_path: Path, command: str, suffix: str
) -> None:
    store = tmp_path / "store.db"
    there = tmp_path / f"mine{suffix}"
    there.write_text("mine")
    wrong = run_cli(command, "--run", "latest", "-o", str(tmp_path / "x.txt"), "--store", str(store))
    taken = run_cli(command, "--run", "latest", "-o", str(there), "--store", str(store))
    assert (wrong.exit_code, taken.exit_code) == (2, 2)
    assert f"must end in {suffix}" in wrong.stderr
    assert "exists" in taken.stderr
    assert there.read_text() == "mine"
    assert not store.exists()


@pytest.mark.parametrize("given", [(), ("--run", "a", "--study", "b"), ("--run", "a", "--platform", "p")])
@pytest.mark.parametrize(("command", "name"), [("report", "x.html"), ("trace", "x.json.gz")])
def test_one_run_or_one_study_is_asked_for(
    run_cli: RunCli, tmp_path: Path, command: str, name: str, given: tuple[str, ...]
) -> None:
    assert run_cli(command, *given, "-o", str(tmp_path / name)).exit_code == 2
