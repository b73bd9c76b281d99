"""Stores to test: a new SQLite file, and a new PostgreSQL database where a server is named."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from xstage_tune.store.facade import Store

#: A database that may create others, e.g. postgresql://user@host/postgres
POSTGRES_URL = os.environ.get("XSTAGE_TEST_POSTGRES")


@pytest.fixture(params=["sqlite", "postgres"] if POSTGRES_URL else ["sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a store that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("postgres")
    return found


@pytest.fixture
def postgres() -> Iterator[str]:
    """Address of a new PostgreSQL database."""
    assert POSTGRES_URL is not None
    name = f"xstage_test_{secrets.token_hex(4)}"
    server = make_url(POSTGRES_URL).set(drivername="postgresql+psycopg")
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    with Store.open(location) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Path of an SQLite store that does not exist yet."""
    return tmp_path / "store.db"
