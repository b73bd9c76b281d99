"""A user's data folder and store of the test's own; the serial kernels on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attention_a2a.emulation import EMULATOR_OPTIONS
from tests.host_library import host_library
from xstage_tune.devices import platform_choice


@pytest.fixture(autouse=True)
def _away_from_the_users_store(own_store: Path) -> None:
    """Every command of these tests uses :func:`tests.conftest.own_store`."""


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    """The kernels of the serial All-to-All, built by the host's compiler."""
    loaded = host_library(Path(__file__).with_name("serial_host.cpp"), *EMULATOR_OPTIONS)
    loaded.run_store_to_ranks.restype = loaded.run_permute_received.restype = ctypes.c_char_p
    return loaded


@pytest.fixture(autouse=True)
def _own_platform(calibrated: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own, on which commands rest that name none, on a machine without a GPU."""
    monkeypatch.setattr(platform_choice, "present_gpu", lambda: None)
    calibrated("h200-host")
