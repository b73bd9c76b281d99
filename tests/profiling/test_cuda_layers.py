"""What the CUDA device queues, checks and records of a MoE layer, with kernels that run on the host."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.configs.cases import moe
from tests.profiling.layers import spans_of
from tests.profiling.test_cuda import FakeGpu, compiled
from xstage_tune.base.bf16 import Bits
from xstage_tune.cuda import moe_profiles, profiles
from xstage_tune.cuda.moe_kernel import PACE
from xstage_tune.cuda.moe_serial import ACTIVATE
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.moe_variants import KERNEL, SHIPPED
from xstage_tune.families.megamoe.check import POISON_BITS, RoutedRows
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.megamoe.timing import (
    AT_ONCE,
    LOCAL,
    PRODUCTS,
    RECORDING,
    SERIAL,
    LayerCase,
    LayerLaunch,
)
from xstage_tune.families.profiled import CheckFigures
from xstage_tune.launches.device import ComposedDevice

TILE = SHIPPED["bf16"][0]
SCHEDULES = (Schedule(kind="wave", experts_per_wave=1), Schedule(kind="interleaved", lead_rows=2))
CASE = LayerCase(
    "",
    moe(precision="bf16"),
    tuple((one.kind, TILE.model_copy(update={"schedule": one})) for one in SCHEDULES),
    "host",
    serial=True,
)
ROWS = 6


class Machine:
    """What was queued, which kernels were made, and what the ranks have."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.made: list[tuple[str, bool, bool, float]] = []
        self.open = 0
        self.received: list[Bits] = []
        self.forgets = ""

    def compute(self, name: str) -> None:
        self.queued.append(name)
        for rank, bits in enumerate(self.received):
            bits[:] = 0x3F80
            if name == self.forgets and rank == 1:
                bits[2] = POISON_BITS


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()

    class Buffers:
        shape = MoeShape(1024, 512, (ROWS,), ranks=2)
        rows = RoutedRows(np.arange(ROWS) % 2, np.arange(ROWS) // 2)

        def __init__(self, *_: Any) -> None:
            found.received = [np.zeros((ROWS // 2, 1024), np.uint16) for _ in range(2)]

        def draw_tokens(self, _: int) -> None:
            pass

        def poison(self) -> None:
            for bits in found.received:
                bits[:] = POISON_BITS

        def received(self) -> tuple[Bits, ...]:
            return tuple(bits.copy() for bits in found.received)

        def sample(self, _: int) -> list[Any]:
            return []

        def tensors(self, _: int) -> None:
            return None

        def close(self) -> None:
            found.queued.append("freed")

    def prepare(_: Any, __: Any, config: Any, *, local: bool, record_spans: bool, pace: float) -> Any:
        name = LOCAL if local else config.schedule.kind
        found.made.append((name, local, record_spans, pace))
        found.open += 1
        closing = ExitStack()
        closing.callback(lambda: setattr(found, "open", found.open - 1))
        kernel = SimpleNamespace(
            config=config, require_finished=lambda _: None, read_spans=lambda _: spans_of(name)
        )
        return SimpleNamespace(
            kernel=kernel, compiled=compiled("moe", KERNEL), entry=KERNEL, shared_bytes=1, producers=4,
            queue=lambda: found.compute(name + (RECORDING if record_spans else "")), close=closing.close,
        )  # fmt: skip

    class Serial:
        loaded = SimpleNamespace(compiled=compiled("serial", ACTIVATE))

        def __init__(self, *_: Any) -> None:
            self.queue = lambda: found.compute(SERIAL)
            self.queue_products = lambda: found.queued.append(PRODUCTS)

        def close(self) -> None:
            pass

    for module, name, fake in (
        (moe_profiles, "MoeBuffers", Buffers),
        (moe_profiles, "prepare_moe", prepare),
        (moe_profiles, "SerialMoe", Serial),
        (moe_profiles, "time", SimpleNamespace(sleep=lambda _: found.queued.append("rested"))),
        (profiles, "synchronize", lambda *_: None),
        (profiles, "installed_sha256", lambda *_: "ab" * 32),
    ):
        monkeypatch.setattr(module, name, fake)
    return found


def layers() -> ComposedDevice:
    return ComposedDevice([moe_profiles.CudaLayers(FakeGpu())])  # type: ignore[arg-type]


def test_every_output_is_compared_with_the_first_schedule_s(machine: Machine) -> None:
    checked = list(layers().run([LayerLaunch(CASE, one, "check") for one in CASE.checked]))
    assert machine.queued == ["wave", "interleaved", SERIAL]
    assert [one.figures for one in checked] == [CheckFigures(None, "")] * 3
    assert {one.verification.checked_bytes for one in checked} == {ROWS * 1024 * 2}


@pytest.mark.parametrize("wrong", ["interleaved", SERIAL])
def test_a_row_that_is_left_out_is_found(machine: Machine, wrong: str) -> None:
    machine.forgets = wrong
    *_, found = layers().run([LayerLaunch(CASE, one, "check") for one in ("wave", wrong)])
    assert isinstance(found.figures, CheckFigures)
    assert found.figures.place == "1 rows of rank 1 were not written, slot 2 the first"
    assert found.verification.mismatched_bytes == 1024 * 2


def test_kernels_are_made_once_and_recording_ones_for_their_spans(machine: Machine) -> None:
    device = layers()
    list(device.run([LayerLaunch(CASE, "wave", "check")]))
    timed = [("wave", False, False), ("interleaved", False, False), (LOCAL, True, False)]
    assert [made[:3] for made in machine.made] == [*timed, ("wave", False, True)]
    assert {made[3] for made in machine.made} == {PACE}
    machine.made.clear()
    recorded = list(device.run([LayerLaunch(CASE, one, "spans") for one in CASE.recorded]))
    assert [made[3] for made in machine.made] == [PACE, PACE, 0.0, 0.0, 0.0]
    assert all(made[2] for made in machine.made)
    assert CASE.recorded[2] == f"wave{AT_ONCE}"
    assert machine.queued[-4:] == ["rested", *[LOCAL + RECORDING] * 3]
    assert all(len(one.table.spans) for one in recorded)
    assert machine.open == len(timed) + 1
    device.close()
    assert machine.open == 0
    assert machine.queued[-1] == "freed"
