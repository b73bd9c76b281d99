"""A store of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _away_from_the_users_store(own_store: Path) -> None:
    """Every command of these tests uses :func:`tests.conftest.own_store`."""
