"""What several tests, or several processes of a test run, need, made once."""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from xstage_tune.store import migrate


@contextmanager
def one_at_a_time(file: Path) -> Iterator[None]:
    """A block in which one process is at a time, by a lock on ``file``."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def made_once(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder of that name, the same for all processes of a test run; one at a time is in the block.

    Whoever finds it without what is to be made makes it.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # has its own folder in that of the test run
        folder = folder.parent
    with one_at_a_time(folder / f"{name}.lock"):
        made = folder / name
        made.mkdir(exist_ok=True)
        yield made


def build_commands_once() -> None:
    """Keep the command line as it is built for the first command: that takes longer than most of them."""
    typer.main.get_command = functools.cache(typer.main.get_command)


#: Of the tool itself, behind :func:`make_tables_once`.
ENSURE_SCHEMA = migrate.ensure_schema


def make_tables_once() -> None:
    """Begin each further SQLite store of this process as a copy of the first one, whose migrations ran."""
    tables: list[bytes] = []

    def ensured(database: Any, *, create: bool = True, fresh: bool = False) -> None:
        path = database.location.path
        if fresh and tables:
            path.write_bytes(tables[0])
            return
        ENSURE_SCHEMA(database, create=create, fresh=fresh)
        if fresh:
            database.close()
            tables.append(path.read_bytes())

    migrate.ensure_schema = ensured
