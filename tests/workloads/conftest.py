"""A user's data folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from xstage_tune.families.workload_files import user_workloads_dir


@pytest.fixture(autouse=True)
def own_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's workload folder, empty, away from the real one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = user_workloads_dir()
    folder.mkdir(parents=True)
    assert folder.is_relative_to(tmp_path)
    return folder
