"""Kernel sources compiled for the CPU, to be called from a test."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.once import one_at_a_time
from xstage_tune.base.assets import data_dir

_BUILT = Path(__file__).parents[1] / "build/host_libraries"


def host_library(source: Path, *options: str) -> ctypes.CDLL:
    """The library of ``source``, which finds the kernels' headers after those that ``options`` name.

    Built by the first process that asks, and kept while the compiler reads the same text. Skips the test
    where there is no C++ compiler.
    """
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    command = [compiler, *options, f"-I{data_dir('kernels')}", "-O1", "-shared", "-fPIC", str(source)]
    text = subprocess.run([*command, "-E"], stdout=subprocess.PIPE, check=True).stdout
    library = _BUILT / f"{hashlib.sha256(' '.join(command).encode() + text).hexdigest()}.so"
    _BUILT.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(library.with_suffix(".lock")):
        if not library.exists():
            unfinished = library.with_suffix(".unfinished")
            subprocess.run([*command, "-o", str(unfinished)], check=True)
            unfinished.replace(library)
    return ctypes.CDLL(str(library))
