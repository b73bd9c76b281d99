"""A user's data folder and store of the test's own; the serial kernels on the CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.attention_a2a import emulation
from xstage_tune.assets import data_dir


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store that commands use, away from the real one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "own.db"
    monkeypatch.setenv("XSTAGE_STORE", str(file))
    return file


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels of the serial All-to-All, built by the host's compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    built = tmp_path_factory.mktemp("serial") / "serial.so"
    emulator = Path(emulation.__file__).parent / "emulator"
    flags = ("-std=c++17", "-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-w")
    includes = (f"-I{emulator}", f"-I{data_dir('kernels')}")
    source = Path(__file__).parent / "serial_host.cpp"
    subprocess.run([compiler, *flags, *includes, "-o", built, source], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.run_store_to_ranks.restype = loaded.run_permute_received.restype = ctypes.c_char_p
    return loaded
