"""A PostgreSQL server that drops connections: idle ones, and those of a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from tests.h200 import H200
from tests.store.bursts import make_burst
from tests.store.conftest import POSTGRES_URL
from tests.store.holder_process import add_study
from xstage_tune.base.errors import StoreError
from xstage_tune.store import runs, studies
from xstage_tune.store.facade import Store

pytestmark = pytest.mark.skipif(not POSTGRES_URL, reason="XSTAGE_TEST_POSTGRES names no server")


@pytest.fixture
def location(postgres: str) -> str:
    return postgres


@pytest.fixture
def drop(location: str) -> Iterator[object]:
    """End all other connections to the database, as a server does that restarts or tires of them."""
    assert POSTGRES_URL is not None
    server = make_url(POSTGRES_URL).set(drivername="postgresql+psycopg")
    admin = create_engine(server, isolation_level="AUTOCOMMIT")

    def end_all() -> None:
        with admin.connect() as connection:
            ended = connection.execute(
                text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = :name"),
                {"name": make_url(location).database},
            )
            assert ended.scalar_one() > 0

    yield end_all
    admin.dispose()


def test_a_search_and_a_run_outlive_idle_connections(store: Store, drop) -> None:
    study = add_study(store)
    with store.begin_run(kind="calibrate", argv=[], device=H200) as run:
        drop()
        store.studies.add_trial(study, number=0, state="complete", params={}, objective_ns=1.0)
        drop()
        run.add_launch(0, make_burst())
        drop()
    drop()
    store.studies.end(study, "finished")
    drop()
    assert [trial.number for trial in store.studies.trials(study)] == [0]
    assert (store.run().status, len(store.launches(run.id))) == ("finished", 1)
    assert store.check().problems == ()


def test_a_transaction_whose_connection_is_dropped_is_made_once_more(
    store: Store, drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = []

    def dropping(function):
        def called(*arguments):
            found = function(*arguments)
            if function not in dropped:
                dropped.append(function)
                drop()
            return found

        return called

    study = add_study(store)
    monkeypatch.setattr(studies, "_held_here", dropping(studies._held_here))
    store.studies.add_trial(study, number=0, state="complete", params={}, objective_ns=1.0)
    assert [trial.number for trial in store.studies.trials(study)] == [0]
    with store.begin_run(kind="calibrate", argv=[], device=H200) as run:
        monkeypatch.setattr(runs.RunWriter, "_launch_id", dropping(runs.RunWriter._launch_id))
        run.add_launch(0, make_burst())
    assert len(store.launches(run.id)) == 1
    assert store.check().problems == ()
    assert len(dropped) == 2


def test_what_fails_again_and_again_is_one_clear_error(store: Store, drop) -> None:
    def always(session: Session) -> None:
        session.execute(text("SELECT 1"))
        drop()
        session.execute(text("SELECT 1"))

    with pytest.raises(StoreError, match="the server cannot be used"):
        store._database.write(always)
