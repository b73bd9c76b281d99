"""A kernel family of another package, installed as any distribution is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "gemm_reduce_scatter"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package in it, and what tells Python of its entry points."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--no-compile")
    command = (sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(SOURCE))
    subprocess.run(command, check=True, timeout=60)
    return folder
