"""A device that looks like a GPU to everything above the seam, and simulates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.h200 import H200
from xstage_tune.devices import opener
from xstage_tune.launches.device import ComposedDevice, DeviceDescription, Outcome, Verification
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.skeletons import SimulatedSkeletons

#: A layer of a few hundred tiles on the H200.
#: Of a precision that the tool has no kernel of, whose tiles would be the defaults.
SMALL = (
    "--workload", "megamoe/deepseek-v4-flash", "--set", "tokens_per_rank=64", "--set", "precision=w4a8",
)  # fmt: skip
HOST = load_platform("h200-host")


class ScriptedGpu(ComposedDevice):
    """An H200 with the calibrated platform's times.

    Args:
        after, happening: what happens before which launch, the untimed round not counted.
        mismatched_bytes: what the owner misses of each timed launch.
        seconds: that each launch takes of wall time.
        description: of the GPU.
    """

    def __init__(
        self,
        *,
        after: int = -1,
        happening: Callable[[], None] = lambda: None,
        mismatched_bytes: int = 0,
        seconds: float = 0.0,
        description: DeviceDescription = H200,
    ) -> None:
        super().__init__([SimulatedSkeletons(HOST)])
        self.identity = "emulation on NVIDIA H200, kernels 0123456789ab"
        self._left, self._happening = after, happening
        self._mismatched_bytes, self._seconds = mismatched_bytes, seconds
        self._description = description
        self.asked: list[list[str]] = []
        self.labels: list[str] = []
        self.closed = False

    def describe(self) -> DeviceDescription:
        return self._description

    def label_launches(self, run_id: str) -> None:
        self.labels.append(run_id)

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        skeletons: list[Skeleton] = list(launches)
        self.asked.append([skeleton.label for skeleton in skeletons])
        timed = len(self.asked) > 1
        for run in super().run(skeletons):
            if timed and self._left == 0:
                self._happening()
            self._left -= timed
            time.sleep(self._seconds)
            yield replace(run, verification=Verification(4096, self._mismatched_bytes if timed else 0))

    def close(self) -> None:
        self.closed = True


def use(monkeypatch: pytest.MonkeyPatch, device: ScriptedGpu) -> ScriptedGpu:
    """Let ``--device cuda`` open ``device``."""
    monkeypatch.setattr(opener, "open_cuda", lambda *_: device)
    return device
