"""Kernel sources compiled for the CPU, to be called from a test."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from xstage_tune.base.assets import data_dir


def host_library(source: Path, *options: str) -> ctypes.CDLL:
    """The library of ``source``, which finds the kernels' headers after those that ``options`` name.

    Skips the test where there is no C++ compiler.
    """
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        built = (*options, f"-I{data_dir('kernels')}", "-O1", "-shared", "-fPIC", "-o", library, source)
        subprocess.run([compiler, *built], check=True)
        return ctypes.CDLL(str(library))
