"""A store of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xstage_tune.devices import platform_choice
from xstage_tune.store.facade import Store


@pytest.fixture(autouse=True)
def _away_from_the_users_store(own_store: Path) -> None:
    """Every command of these tests uses :func:`tests.conftest.own_store`."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Beside the one that commands use."""
    with Store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _own_platform(calibrated: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own, on which commands rest that name none, on a machine without a GPU."""
    monkeypatch.setattr(platform_choice, "present_gpu", lambda: None)
    calibrated("paper-nvlink5")
