"""What the CUDA device queues, checks and times, with kernels that run on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.attention_a2a.emulation import attention
from tests.configs.cases import attention_config
from tests.profiling.gpu import spans_of
from xstage_tune.base.bf16 import Bits, to_bf16
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda import attention_buffers, profiles
from xstage_tune.cuda import attention_profiles as cuda
from xstage_tune.cuda.attention_buffers import AttentionBuffers
from xstage_tune.cuda.attention_epochs import Receipt
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import KERNEL, SHARED_BYTES_LIMIT
from xstage_tune.cuda.serial_a2a import STORE_KERNEL
from xstage_tune.families.attention_a2a.check import POISON_BITS, Inputs
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    AttentionLaunch,
    AttentionOutcome,
    Implementation,
    ProfileCase,
    SpanFigures,
    replays,
)
from xstage_tune.families.profiled import CheckFigures, ReplayFigures
from xstage_tune.launches.device import ComposedDevice, LaunchInfo

CASE = ProfileCase("", 40, 2, 64, 8, 7, attention_config(block_n=64), "host", seed=3)
OUTPUT, RANKS, RECEIVERS, WORDS, RECEIVED, COPIED = (place << 20 for place in range(1, 7))


@dataclass
class Machine:
    """What was queued, and the memory that it changes."""

    queued: list[str] = field(default_factory=list)
    output: Bits = field(default_factory=lambda: np.empty(0, np.uint16))
    ranks: Bits = field(default_factory=lambda: np.empty(0, np.uint16))
    inputs: Inputs | None = None
    forgets: str = ""  # work that leaves a row unwritten
    late: bool = False
    open_kernels: int = 0

    def compute(self) -> Bits:
        assert self.inputs is not None
        q, k, v = self.inputs.query, self.inputs.key, self.inputs.value
        return to_bf16(attention(q, k, v).astype(np.float32))

    def move(self, name: str, source: Bits) -> None:
        self.queued.append(name)
        self.ranks[:] = source
        if self.forgets == name:
            self.ranks[33, 1] = POISON_BITS


def compiled(source: str, entry: str) -> SimpleNamespace:
    return SimpleNamespace(
        sha256=f"{source} source", entries={entry: SimpleNamespace(registers=168, spill_bytes=0)}
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Kernels, buffers and graphs of the host in place of the GPU's."""
    found = Machine()

    class Kernel:
        ctas = 2

        def __init__(self, _: Any, shape: AttentionShape, __: Any, *, record_spans: bool = False) -> None:
            self.compiled = compiled("attention", KERNEL)
            self._shape, self._records = shape, record_spans
            found.open_kernels += 1

        def prepare(
            self,
            q: int,
            k: int,
            v: int,
            destinations: Destinations,
            exchange: Any = None,
            receipt: Any = None,
        ) -> SimpleNamespace:
            assert (q, k, v) == (1, 2, 3)
            if exchange is not None:
                assert destinations.signals == tuple(range(WORDS, WORDS + 32, 4))
                # Five tokens of 16 heads.
                assert receipt == Receipt(WORDS, RECEIVED, 5 * 16 * 64 * 2)
            return SimpleNamespace(
                buffers=destinations.buffers,
                exchange=exchange,
                output=SimpleNamespace(value=0),
                timeout_ns=SimpleNamespace(value=0),
            )

        def launch(self, prepared: SimpleNamespace, _: Any) -> None:
            variant = ", recording" if self._records else ""
            if prepared.exchange is not None:
                assert prepared.output.value == COPIED
                assert prepared.timeout_ns.value > 1e9
                found.move("received", found.compute())
                prepared.exchange.raised = found.late
            elif prepared.buffers == (OUTPUT,):
                assert self._shape.ranks == 1
                found.queued.append(f"attention{variant}")
                found.output[:] = found.compute()
            else:
                assert prepared.buffers == (RANKS,) * 8
                found.move(f"fused{variant}", found.compute())

        def read_spans(self, _: Any) -> Any:
            assert self._records
            return spans_of(CASE, remote=self._shape.ranks > 1, ctas=2)

        def close(self) -> None:
            found.open_kernels -= 1

    class Serial:
        def __init__(self, *_: Any) -> None:
            self.compiled = compiled("store", STORE_KERNEL)

        def store(self, source: int, destinations: Destinations, _: Any) -> None:
            assert (source, destinations.buffers) == (OUTPUT, (RANKS,) * 8)
            found.move("store", found.output)

        def copy(self, source: int, destinations: Destinations, _: Any) -> None:
            assert (source, destinations.buffers) == (OUTPUT, (RANKS,) * 8)
            found.move("copy", found.output)

        def copy_and_permute(self, source: int, receivers: Destinations, *_: Any) -> None:
            assert (source, receivers.buffers) == (OUTPUT, (RECEIVERS,) * 8)
            found.move("permute", found.output)

    class Buffers:
        inputs = 1, 2, 3
        output = OUTPUT
        destinations, receivers = Destinations((RANKS,) * 8), Destinations((RECEIVERS,) * 8)
        received = permuted = 0
        receipt = RECEIVED, COPIED

        def __init__(self, _: Any, __: Any, ___: Any, inputs: Inputs) -> None:
            found.inputs = inputs
            found.output, found.ranks = np.zeros_like(inputs.query), np.zeros_like(inputs.query)

        def poison_output(self) -> None:
            found.output[:] = POISON_BITS

        def poison_ranks(self) -> None:
            found.ranks[:] = POISON_BITS

        def read_output(self) -> Bits:
            return found.output.copy()

        def read_ranks(self, *, received: bool) -> Bits:
            assert received == (found.queued[-1] == "permute")
            return found.ranks.copy()

        def close(self) -> None:
            found.queued.append("freed")

    class FakeExchange:
        raised = False

        def __init__(self, _: Any) -> None:
            found.open_kernels += 1

        def fault(self) -> DeviceError | None:
            return DeviceError("rank 3 did not signal") if self.raised else None

        def close(self) -> None:
            found.open_kernels -= 1

    words = SimpleNamespace(address=WORDS, close=lambda: None)

    class Graph:
        launches = 3

        def __init__(self, _: Any, queue: Callable[[], None], launch_ns: float) -> None:
            assert launch_ns == 1e6
            self.queue = queue
            found.queued.append("captured")

        def close(self) -> None:
            found.queued.append("graph freed")

    class Replays:
        turns = 7

        def __init__(self, _: Any, graphs: list[Graph]) -> None:
            self._graphs = graphs

        def launches(self) -> list[int]:
            return [10 * graph.launches for graph in self._graphs]

        def times_ns(self, timeout_s: float) -> list[float]:
            assert timeout_s > 10
            for graph in self._graphs:
                graph.queue()
            return [5e3 + place for place in range(len(self._graphs))]

    def elapsed_ns(_: Any, queue: Callable[[], None], *__: Any, before: Callable[[], None]) -> float:
        before()
        queue()
        return 1e6

    rest = SimpleNamespace(sleep=lambda seconds: found.queued.append("rested" if seconds else ""))
    for module, name, fake in (
        (cuda, "AttentionA2A", Kernel),
        (cuda, "Exchange", FakeExchange),
        (cuda, "GpuMemory", SimpleNamespace(zeroed=lambda *_: words)),
        (cuda, "SerialA2A", Serial),
        (cuda, "AttentionBuffers", Buffers),
        (cuda, "time", rest),
        (profiles, "ReplayGraph", Graph),
        (profiles, "GraphsInTurn", Replays),
        (profiles, "elapsed_ns", elapsed_ns),
        (profiles, "synchronize", lambda *_: None),
    ):
        monkeypatch.setattr(module, name, fake)
    return found


class FakeGpu:
    """Measures by calling."""

    device = SimpleNamespace(name="NVIDIA H200", device_id=0, set_current=lambda: None)
    stream = None
    sm_count = 132

    def measure(self, run: Callable[[], Any], **named: Any) -> tuple[Any, LaunchInfo]:
        info = LaunchInfo(named["kernel"], "00", 168, 0, 1, 32, 1, "2026-11-29T12:00:00+00:00")
        return run(), replace(info, producers=named["producers"])


@pytest.fixture(autouse=True)
def _own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "installed_sha256", lambda *_: "ab" * 32)


def attentions() -> ComposedDevice:
    return ComposedDevice([cuda.CudaAttentions(FakeGpu())])  # type: ignore[arg-type]


def check(device: ComposedDevice, implementation: Implementation) -> AttentionOutcome:
    (checked,) = device.run([AttentionLaunch(CASE, implementation, "check")])
    return checked


QUEUES: dict[Implementation, list[str]] = {
    "attention": ["attention"],
    "all-to-all": ["store"],
    "serial-direct": ["attention", "store"],
    "serial-copy": ["attention", "copy"],
    "serial-permute": ["attention", "permute"],
    "fused": ["fused"],
    "fused-received": ["received"],
}


def test_each_implementation_is_right_and_queues_its_own_work(machine: Machine) -> None:
    device = attentions()
    for implementation in IMPLEMENTATIONS:
        machine.queued.clear()
        checked = check(device, implementation)
        assert isinstance(checked.figures, CheckFigures)
        assert checked.figures.place == ""
        assert checked.verification.checked_bytes > 0
        assert machine.queued == QUEUES[implementation]


@pytest.mark.parametrize(
    ("work", "implementation"),
    [("store", "serial-direct"), ("copy", "serial-copy"), ("permute", "serial-permute"), ("fused", "fused")],
)
def test_a_row_that_is_left_out_is_found(machine: Machine, work: str, implementation: Implementation) -> None:
    machine.forgets = work
    device = attentions()
    check(device, "attention")
    checked = check(device, implementation)
    assert isinstance(checked.figures, CheckFigures)
    assert checked.figures.place == "token 33 of rank 6, head 1: element 0 is not written"
    assert checked.verification.mismatched_bytes == 64 * 2


def test_a_call_that_awaits_in_vain_is_an_error(machine: Machine) -> None:
    device = attentions()
    machine.late = True
    check(device, "attention")
    with pytest.raises(DeviceError, match="rank 3 did not signal"):
        check(device, "fused-received")


def test_a_graph_is_captured_once_after_a_launch_and_replayed(machine: Machine) -> None:
    device = attentions()
    for repeat in range(2):
        machine.queued.clear()
        (sample,) = device.run(replays(CASE, ["serial-copy"]))
        assert sample.figures == ReplayFigures(launches=30, time_ns=5e3)
        assert machine.queued == [
            *([] if repeat else ["attention", "copy"] * 2 + ["captured"]),
            "attention",
            "copy",
        ]
    device.close()
    assert machine.queued[-2:] == ["graph freed", "freed"]
    assert machine.open_kernels == 0
    device.close()
    assert machine.queued.count("freed") == 1


def test_the_last_case_is_held_until_another_one(machine: Machine) -> None:
    device = attentions()
    check(device, "attention")
    held = machine.open_kernels
    check(device, "fused")
    assert machine.open_kernels == held
    assert "freed" not in machine.queued
    list(device.run([AttentionLaunch(replace(CASE, seed=4), "attention", "check")]))
    assert machine.queued.count("freed") == 1
    assert machine.open_kernels == held


def test_replays_in_turn_are_of_one_measurement_and_each_of_its_own_kernel(machine: Machine) -> None:
    device = attentions()
    in_turn: list[Implementation] = ["fused", "fused-recording", "all-to-all", "serial-permute"]
    list(device.run(replays(CASE, in_turn)))
    machine.queued.clear()
    timed = list(device.run(replays(CASE, in_turn)))
    assert machine.queued == ["fused", "fused, recording", "store", "attention", "permute"]
    assert [one.launch.implementation for one in timed] == in_turn
    assert [one.figures for one in timed] == [ReplayFigures(30, 5e3 + place) for place in range(4)]
    assert [one.info.kernel.partition("[")[0] for one in timed] == in_turn
    assert [one.info.producers for one in timed] == [2, 2, 132, 132]
    own, recording, stores, serial = (one.info for one in timed)
    assert recording.shared_bytes == SHARED_BYTES_LIMIT > own.shared_bytes == serial.shared_bytes > 0
    assert stores.shared_bytes == 0
    assert {one.elapsed_ns for one in (own, recording, stores, serial)} == {1}
    assert [one.kernel_sha256 for one in (own, stores)] == ["attention source", "store source"]


def test_replays_in_turn_are_asked_for_together(machine: Machine) -> None:
    first, second = replays(CASE, ["fused", "attention"])
    for asked in ([first], [second], [first, first], [second, first]):
        with pytest.raises(UsageError, match="asked for together"):
            list(attentions().run(asked))
    assert machine.queued == []


def test_spans_are_of_the_variant_that_records(machine: Machine) -> None:
    (recorded,) = attentions().run([AttentionLaunch(CASE, "fused", "spans")])
    assert machine.queued == ["rested", *["fused, recording"] * 3]
    assert isinstance(recorded.figures, SpanFigures)
    assert recorded.figures.tiles == 2
    assert len(recorded.table.spans) == 2 * 2 * 3
    assert recorded.info.shared_bytes == SHARED_BYTES_LIMIT


def test_an_error_while_preparing_closes_what_was_opened(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise DeviceError("too little memory")

    monkeypatch.setattr(cuda, "AttentionBuffers", refuse)
    with pytest.raises(DeviceError, match="too little"):
        check(attentions(), "attention")
    assert machine.open_kernels == 0


def test_more_ranks_than_the_table_holds_are_refused() -> None:
    case = replace(CASE, ranks=16, remote_ranks=15)
    with pytest.raises(UsageError, match="16 ranks"):
        list(attentions().run([AttentionLaunch(case, "attention", "check")]))


@pytest.mark.parametrize(
    ("free_gpu_gib", "free_host_gib", "words"),
    [
        (0.5, 100.0, r"needs 1\.\d\d GiB of GPU memory on NVIDIA H200, of which 0\.50 GiB are free"),
        (100.0, 0.25, r"needs 0\.\d\d GiB of pinned host memory, of which 0\.25 GiB are free"),
    ],
)
def test_too_little_memory_says_how_much_is_needed_before_any_is_taken(
    monkeypatch: pytest.MonkeyPatch, free_gpu_gib: float, free_host_gib: float, words: str
) -> None:
    monkeypatch.setattr(attention_buffers, "free_bytes", lambda _: int(free_gpu_gib * 2**30))
    monkeypatch.setattr(attention_buffers, "free_host_bytes", lambda: int(free_host_gib * 2**30))
    case = ProfileCase("", 75_600, 5, 128, 8, 7, attention_config(), "host")
    shape = AttentionShape(75_600, 5, 128, 8)
    none = np.empty(0, np.uint16)
    with pytest.raises(DeviceError, match=words):
        AttentionBuffers(FakeGpu(), case, shape, Inputs(none, none, none))  # type: ignore[arg-type]
