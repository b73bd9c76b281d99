"""Kernels of a search: each output is checked before its time counts; times are taken in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.configs.cases import attention, attention_config
from xstage_tune.base.errors import DeviceError, FindingError
from xstage_tune.cuda import kernel_trials
from xstage_tune.cuda.fused_kernel import TileSpansOfLaunch
from xstage_tune.cuda.kernel_trials import CudaKernels
from xstage_tune.families.kernel_launch import KernelLaunch, KernelRun
from xstage_tune.launches.device import GpuState, LaunchInfo

WORKLOAD = attention(tokens=4096)
FAST, SLOW, SAME = (attention_config(block_n=block_n) for block_n in (128, 112, 96))
TIMES_NS = {FAST: 1e5, SLOW: 1.1e5, SAME: 1.0001e5}
#: Of successive samples of one config, as a fraction.
NOISE = 1e-3


@dataclass
class Bench:
    """A family's kernel whose times are known, and what was done with it."""

    done: list[str] = field(default_factory=list)
    wrong: set[Any] = field(default_factory=set)
    inputs: list[int] = field(default_factory=list)
    open_kernels: int = 0
    sources = ("attention_a2a/attention.cu",)
    architecture = "sm_90a"

    def open(self, gpu: object, workload: object, path: str) -> Bench:
        del gpu, workload
        self.done.append(f"open {path}")
        return self

    def prepare(self, config: Any, *, local: bool = False) -> SimpleNamespace:
        self.open_kernels += 1
        time_ns = TIMES_NS[config] * (0.9 if local else 1.0)

        def close() -> None:
            self.open_kernels -= 1

        return SimpleNamespace(
            name=config.label, config=config, time_ns=time_ns, compiled=None, entry="k", shared_bytes=7,
            producers=132, timeout_s=1.0, queue=lambda: None, close=close,
        )  # fmt: skip

    def launch_on(self, kernel: Any, inputs: int, trusted: Any) -> Callable[[], None]:
        self.inputs.append(inputs)
        compared = f" with {trusted.config.block_n}" if trusted else ""
        self.done.append(f"launch {kernel.config.block_n}{compared}")

        def compare() -> None:
            self.done.append(f"compare {kernel.config.block_n}")
            if kernel.config in self.wrong:
                raise FindingError("it is wrong")

        return compare

    def spans(self, config: Any) -> TileSpansOfLaunch:
        del config
        return TileSpansOfLaunch(mainloop_ns=5e3, stall_ns=40.0)

    def close(self) -> None:
        self.done.append("close")


class Turns:
    """Samples of known times, the noise of which two kernels share no part of."""

    def __init__(self, stream: object, graphs: Sequence[Any]) -> None:
        del stream
        self._graphs = graphs
        self.turn_ns = 5e6
        self._number = 0

    def settle(self, time_ns: float) -> None:
        DONE.append(f"settle {time_ns:g}")

    def samples_ns(
        self, turns: int, timeout_s: float, meanwhile: Callable[[], None]
    ) -> list[tuple[float, ...]]:
        assert timeout_s > 0
        meanwhile()
        DONE.append(f"time {turns}")
        begin, self._number = self._number, self._number + turns
        return [
            tuple(
                graph.time_ns * (1 + NOISE * ((place + sample) % 2)) for sample in range(begin, begin + turns)
            )
            for place, graph in enumerate(self._graphs)
        ]


DONE: list[str] = []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    opened = Bench(DONE)
    DONE.clear()
    monkeypatch.setattr(kernel_trials, "GraphsInTurn", Turns)
    monkeypatch.setattr(kernel_trials, "elapsed_ns", lambda *_, **__: 1e5)
    monkeypatch.setattr(kernel_trials, "cold_times_ns", lambda *_: (2e5,) * 5)
    monkeypatch.setattr(kernel_trials, "GpuMemory", lambda *_: SimpleNamespace(close=lambda: None))

    class Graph:
        def __init__(self, stream: object, queue: Any, one_ns: float) -> None:
            del stream, one_ns
            self.time_ns = queue

        def close(self) -> None:
            pass

    monkeypatch.setattr(kernel_trials, "ReplayGraph", Graph)
    # The graph of a fake kernel knows its time by what it queues.
    prepare = opened.prepare

    def timed(config: Any, *, local: bool = False) -> SimpleNamespace:
        kernel = prepare(config, local=local)
        kernel.queue = kernel.time_ns
        return kernel

    monkeypatch.setattr(opened, "prepare", timed)
    return opened


def kernels(bench: Bench) -> CudaKernels:
    info = LaunchInfo("k", "", 0, 0, 0, 1, 1, "2026-01-01T00:00:00+00:00")
    properties = SimpleNamespace(l2_cache_size=60 << 20)
    gpu: Any = SimpleNamespace(
        device=SimpleNamespace(name="H200", properties=properties),
        stream=None,
        measure=lambda run, **_: (run(), info),
        state=lambda: GpuState(1980, 3201, 600.0, 50, ("sw_power_cap", "idle")),
    )
    return CudaKernels(gpu, bench)  # type: ignore[arg-type]


def run(device: CudaKernels, config: Any, **options: Any) -> KernelRun:
    (outcome,) = device.run([KernelLaunch(WORKLOAD, config, "host", **options)])
    return outcome.figures


def test_an_output_is_compared_before_the_first_sample(bench: Bench) -> None:
    run(kernels(bench), FAST, inputs=3)
    assert bench.done == ["open host", "launch 128", "settle 3e+07", "compare 128", "time 5"]


def test_a_wrong_output_has_no_time(bench: Bench) -> None:
    bench.wrong.add(FAST)
    device = kernels(bench)
    with pytest.raises(FindingError):
        run(device, FAST)
    assert not [what for what in bench.done if what.startswith("time")]
    bench.wrong.clear()
    assert run(device, FAST).latency_ns


def test_every_launch_has_the_inputs_it_asks_for_and_is_compared_with_the_other(bench: Bench) -> None:
    device = kernels(bench)
    run(device, FAST, inputs=1)
    run(device, SLOW, against=FAST, tolerance=0.005, inputs=2)
    assert bench.inputs == [1, 2]
    assert "launch 112 with 128" in bench.done


def test_what_is_clearly_slower_takes_few_samples_and_what_is_close_takes_more(bench: Bench) -> None:
    device = kernels(bench)
    slow = run(device, SLOW, against=FAST, tolerance=0.005)
    assert len(slow.latency_ns) == len(slow.against_ns) == 5
    assert slow.ratio is not None
    assert slow.ratio.low > 1.09
    near = run(device, SAME, against=FAST, tolerance=1e-5)
    assert len(near.latency_ns) == 30
    tie = run(device, SAME, against=FAST, tolerance=0.005)
    assert len(tie.latency_ns) == 5
    assert tie.ratio is not None
    assert tie.ratio.within(0.005)


def test_the_last_comparison_takes_as_many_samples_as_are_asked_for(bench: Bench) -> None:
    last = run(kernels(bench), SLOW, repeats=20, against=FAST, exposed=True)
    assert len(last.latency_ns) == 20
    assert last.exposed_ns == pytest.approx(0.1 * TIMES_NS[SLOW], rel=0.01)


def test_a_kernel_may_be_timed_against_itself(bench: Bench) -> None:
    same = run(kernels(bench), FAST, against=FAST, repeats=20)
    assert same.ratio is not None
    assert same.ratio.value == pytest.approx(1, abs=NOISE)
    assert bench.open_kernels == 1


def test_clocks_throttling_cold_times_and_spans_come_along(bench: Bench) -> None:
    found = run(kernels(bench), FAST, spans=True)
    assert found.states[0].sm_clock_mhz == 1980
    assert found.throttled == ("sw_power_cap",)
    assert found.cold_ns == (2e5,) * 5
    assert found.stall_ns == (40.0,)
    assert found.busy_ns > sum(found.cold_ns)
    with pytest.raises(DeviceError, match="measures no stall"):
        run(kernels(bench), FAST).median_ns("stall")


def test_only_what_a_launch_needs_is_held(bench: Bench) -> None:
    device = kernels(bench)
    for config in (FAST, SLOW, SAME):
        run(device, config, against=FAST)
        assert bench.open_kernels <= 2
    device.close()
    assert bench.open_kernels == 0
    assert bench.done[-1] == "close"
