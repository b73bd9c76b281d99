from __future__ import annotations

import gzip
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect

from tests.store.bursts import assert_same_burst, make_burst, stored_burst
from tests.store.golden import make
from tests.store.skeletons import skeleton_run
from xstage_tune.base import assets
from xstage_tune.base.errors import StoreError
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.store.dialects import VERSION_TABLE
from xstage_tune.store.facade import Store
from xstage_tune.store.location import resolve_location
from xstage_tune.store.migrate import HEAD_REVISION
from xstage_tune.store.models import Base

GOLDEN = sorted(make.FOLDER.glob("schema_*.db.gz"))


@pytest.fixture
def migrated(location: str):
    """Engine on a store that the migrations made."""
    Store.open(location).close()
    engine = create_engine(resolve_location(location).url)
    yield engine
    engine.dispose()


def constraints(engine: Engine) -> dict[str, Any]:
    """Names and columns of all keys, indexes and checks, by table."""
    found = inspect(engine)
    return {
        table: {
            "primary": found.get_pk_constraint(table),
            "foreign": sorted(found.get_foreign_keys(table), key=str),
            "unique": sorted(found.get_unique_constraints(table), key=str),
            "index": sorted(found.get_indexes(table), key=str),
            "check": sorted(found.get_check_constraints(table), key=str),
        }
        for table in found.get_table_names()
        if table != VERSION_TABLE
    }


def test_migrations_give_the_columns_of_the_models(migrated: Engine) -> None:
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_give_the_constraints_of_the_models(tmp_path: Path) -> None:
    Store.open(tmp_path / "migrated.db").close()
    migrated = create_engine(f"sqlite:///{tmp_path}/migrated.db")
    created = create_engine(f"sqlite:///{tmp_path}/created.db")
    Base.metadata.create_all(created)
    assert constraints(migrated) == constraints(created)
    migrated.dispose()
    created.dispose()


def test_every_constraint_has_a_name(migrated: Engine) -> None:
    for table, kinds in constraints(migrated).items():
        named = [*kinds["foreign"], *kinds["unique"], *kinds["index"], *kinds["check"], kinds["primary"]]
        assert all(constraint["name"] for constraint in named), table


def test_the_known_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(assets.data_dir("store")))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD_REVISION


def test_there_is_a_golden_store_of_the_current_schema() -> None:
    assert GOLDEN[-1].name == f"schema_{HEAD_REVISION}.db.gz"


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_a_golden_store_is_read_by_this_version(golden: Path, file: Path) -> None:
    file.write_bytes(gzip.decompress(golden.read_bytes()))
    with Store.open(file) as store:
        run = store.run()
        assert (run.kind, run.status, run.seed) == ("calibrate", "finished", 1)
        for launch, seed in zip(store.launches(run.id), make.SEEDS, strict=True):
            assert_same_burst(stored_burst(launch), make_burst(seed))
        assert [fit.payload for fit in store.fits(run.id)] == [make.FIT]
        if golden.name >= "schema_0002":
            assert_same_skeleton(store)
        study = store.studies.get()
        (trial,) = store.studies.trials(study.id)
        assert (study.status, trial.params, trial.run_id) == ("finished", make.PARAMS, run.id)
        assert trial.objective_ns is not None
        assert math.isnan(trial.objective_ns)
        assert trial.latency_ns == (make.LATENCY_NS if golden.name >= "schema_0004" else None)
        if golden.name >= "schema_0006":
            assert trial.fault == "unstable"
            assert repr(trial.measured) == repr(make.TRIAL_MEASURED)
        else:
            assert (trial.fault, trial.measured) == (None, None)
        assert store.check().problems == ()
        assert store.summary().revision == HEAD_REVISION


def assert_same_skeleton(store: Store) -> None:
    (run,) = store.runs("emulate")
    (launch,) = store.launches(run.id)
    expected = skeleton_run()
    assert launch.point_as(SKELETONS) == SKELETONS.point(expected)
    assert launch.measured is not None
    assert make.MEASURED.items() <= launch.measured.items()
    assert (launch.table().spans == expected.table.spans).all()


def test_an_older_store_that_may_only_be_read_says_what_to_do(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(gzip.decompress(GOLDEN[0].read_bytes()))
    monkeypatch.setattr("xstage_tune.store.dialects._writable", lambda _: False)
    with pytest.raises(StoreError, match=r"may only be read and has schema revision 0001") as refusal:
        Store.open(file, create=False)
    assert "copy it" in refusal.value.hint


def test_a_newer_store_is_refused_and_left_alone(file: Path) -> None:
    Store.open(file).close()
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=f"9999.*{HEAD_REVISION}") as refusal:
        Store.open(file)
    assert "upgrade" in refusal.value.hint
    assert file.read_bytes() == before
