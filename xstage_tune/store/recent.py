"""Ids of the newest runs and studies, as quickly as a shell's completion needs them.

Read straight from an SQLite file: opening a :class:`~xstage_tune.store.facade.Store` takes half a second,
and brings an older file up to date. A server is not asked.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Literal

from xstage_tune.store.location import resolve_location

_MOST = 100
_WAIT_S = 0.2
_QUERIES = {
    "run": "SELECT id FROM run ORDER BY started_at DESC, id LIMIT ?",
    "study": "SELECT id FROM study ORDER BY created_at DESC, id LIMIT ?",
}


def recent_ids(location: str | None, kind: Literal["run", "study"]) -> list[str]:
    """The newest ids first; none of a server's.

    Raises:
        StoreError: the location is none.
        sqlite3.Error: there is no such file, or it is no store.
    """
    path = resolve_location(location).path
    if path is None:
        return []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)) as connection:
        return [identity for (identity,) in connection.execute(_QUERIES[kind], (_MOST,))]
