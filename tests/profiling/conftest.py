"""A user's data folder and store of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store that commands use, away from the real one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "own.db"
    monkeypatch.setenv("XSTAGE_STORE", str(file))
    return file
