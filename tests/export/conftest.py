"""Lookups must not depend on the GPU of the machine that runs the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from xstage_tune.export import identity
from xstage_tune.platforms.identity import GpuIdentity

#: Puts a GPU, or none, into the machine; returns how often it was asked for so far.
SetGpu = Callable[[GpuIdentity | None], Callable[[], int]]


@pytest.fixture(autouse=True)
def set_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetGpu]:
    """No GPU, unless a test puts one there."""
    asked = 0

    def put(gpu: GpuIdentity | None) -> Callable[[], int]:
        def present() -> GpuIdentity | None:
            nonlocal asked
            asked += 1
            return gpu

        monkeypatch.setattr(identity, "present_gpu", present)
        identity._present.cache_clear()
        return lambda: asked

    put(None)
    yield put
    identity._present.cache_clear()
