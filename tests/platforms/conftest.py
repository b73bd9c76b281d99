"""A user's data folder of the test's own, and a small valid profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from xstage_tune.platforms.loader import user_platforms_dir

PROFILE_TOML = """\
schema_version = 1
name = "tiny"
path = "host"

[gpu]
name = "Test GPU"
architecture = "sm_90a"
sm_count = 8
sm_clock_mhz = 1980.0
l2_bytes = 1000000

[drain]
bytes_per_s = 50e9
source = "made up"

[[issue]]
flavour = "st.v4"
producers = 8
burst_bytes = 2048
ns = 80.0
source = "made up"

[provenance]
created_at = "2026-01-01T00:00:00Z"
tool_version = "0.1.0"
"""


@pytest.fixture(autouse=True)
def own_platforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's platform folder, empty, away from the real one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = user_platforms_dir()
    folder.mkdir(parents=True)
    assert folder.is_relative_to(tmp_path)
    return folder


@pytest.fixture
def profile_toml() -> str:
    return PROFILE_TOML
