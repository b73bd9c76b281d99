"""The fused MoE kernel on this GPU: its rate beside others', and its schedules where stores leave.

    python benchmarks/megamoe.py rates [--precision w8a8] -o FILE.json
    python benchmarks/megamoe.py schedules [--path host] -o FILE.json
    python benchmarks/megamoe.py leads [--path host] -o FILE.json
    python benchmarks/megamoe.py predict FILE.json

``rates``: one rank that keeps all it computes, balanced routing, EP 8's local experts; beside it what
``megamoe_yardsticks.py`` has. All run in turn, in graphs of some milliseconds, at the clocks of all of them.

``schedules``: the rank that receives most of EP 8, whose rows leave in part; every schedule with its usual
parameter, in turn. ``leads``: one of these cases with many a lead D. ``predict`` puts the simulator's times
and the design test beside measured schedules; it needs no GPU. A case's first kernel is checked beforehand.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from megamoe_yardsticks import bf16_products, w8a8_products

from xstage_tune.base.fabric import StorePath
from xstage_tune.families.binding import bind
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule, ScheduleKind
from xstage_tune.families.megamoe.defaults import schedule_of_kind
from xstage_tune.families.megamoe.workload import MoeWorkload, Precision
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform

#: Layers with the experts of one of eight ranks.
LAYERS = {"deepseek-v4-flash": 32, "deepseek-v4-pro": 48, "glm-5": 32}
TOKENS = (8192, 4096, 2048, 1024, 512)
KINDS: tuple[ScheduleKind, ...] = ("wave", "interleaved", "alternating", "clamped-lag")
#: Layer, tokens of a rank, share of Combine that leaves, exponent of Zipf's law (0: balanced).
CASES = (
    ("deepseek-v4-flash", 8192, 0.0625, 0.0),
    ("deepseek-v4-flash", 8192, 0.125, 0.0),
    ("deepseek-v4-flash", 8192, 0.1875, 0.0),
    ("deepseek-v4-flash", 8192, 0.25, 0.0),
    ("deepseek-v4-flash", 8192, 0.3125, 0.0),
    ("deepseek-v4-flash", 4096, 0.125, 0.5),
    ("deepseek-v4-flash", 4096, 0.25, 0.5),
    ("glm-5", 4096, 0.125, 0.0),
    ("glm-5", 4096, 0.25, 0.0),
    ("deepseek-v4-pro", 4096, 0.125, 0.0),
    ("deepseek-v4-pro", 4096, 0.25, 0.0),
)
LEAD_CASE = CASES[3]
LEADS = (1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48)
TILE: dict[str, Any] = {
    "block_m": 128,
    "block_n": 256,
    "pipeline_stages": 3,
    "staging_depth": 1,
    "store_flavour": "st.v4",
    "epilogue_warps": 8,
}
#: Elements of 128 bytes.
BLOCK_K: dict[Precision, int] = {"bf16": 64, "w8a8": 128}
PLATFORM = "h200-host"
SETTLING_S, TURNS, GRAPH_S = 0.25, 8, 6e-3
TIMEOUT_S = 60.0


def config(schedule: Schedule, precision: Precision) -> MegaMoeConfig:
    """The kernel's widest tile under a schedule."""
    return MegaMoeConfig(**TILE, block_k=BLOCK_K[precision], schedule=schedule)


def layer(name: str, tokens: int, *more: str, precision: Precision = "bf16") -> MoeWorkload:
    """A layer."""
    keys = [f"precision={precision}", f"tokens_per_rank={tokens}", *more]
    found = load_workload(f"megamoe/{name}", keys)
    assert isinstance(found, MoeWorkload)
    return found


def case_layer(case: tuple[Any, ...]) -> MoeWorkload:
    """The layer of one of :data:`CASES`."""
    name, tokens, remote, alpha = case
    routing = ["routing.kind=zipf", f"routing.alpha={alpha}"] if alpha else []
    return layer(name, tokens, f"remote_fraction={remote}", *routing)


def schedules(workload: MoeWorkload) -> dict[str, MegaMoeConfig]:
    """Every kind with its usual parameter, by its label."""
    platform = load_platform(PLATFORM)
    precision = workload.precision
    plain = config(Schedule(kind="alternating"), precision)
    made = (config(schedule_of_kind(kind, plain, workload, platform), precision) for kind in KINDS)
    return {one.schedule.label: one for one in made}


class Bench:
    """Kernels of a layer on this GPU, and torch on the same stream."""

    def __init__(self, workload: MoeWorkload, path: StorePath) -> None:
        import torch

        from xstage_tune.cuda.gpu import Gpu
        from xstage_tune.cuda.moe_buffers import MoeBuffers

        torch.zeros(1, device="cuda")
        self.torch, self.gpu = torch, Gpu.open(0)
        self.buffers = MoeBuffers(self.gpu, workload, path)
        self.shape = self.buffers.shape
        self._kernels: list[Any] = []

    def queue(self, one: MegaMoeConfig) -> Callable[[], None]:
        """What queues a config's kernel; the first is found right beforehand."""
        from cuda.core import Stream

        from xstage_tune.cuda.driver import synchronize
        from xstage_tune.cuda.moe_kernel import MegaMoe
        from xstage_tune.families.megamoe.check import complaint

        kernel = MegaMoe(self.gpu.device, self.shape, one)
        self._kernels.append(kernel)
        prepared = kernel.prepare(self.buffers.tensors(one.block_m))
        buffers, stream = self.buffers, self.gpu.stream
        buffers.poison()
        kernel.launch(prepared, stream)
        synchronize(stream, TIMEOUT_S, "the MoE kernel")
        kernel.require_finished(stream)
        if len(self._kernels) == 1:
            samples, precision = buffers.sample(one.block_m), self.shape.precision
            wrong = complaint(buffers.received(), buffers.rows, samples, None, precision)
            if wrong:
                raise SystemExit(f"{one.label}: {wrong}")

        def queue() -> None:
            kernel.launch(prepared, Stream.from_handle(self.torch.cuda.current_stream().cuda_stream))

        return queue

    def times_us(self, queues: dict[str, Callable[[], None]]) -> dict[str, float]:
        """Of one launch of each, in turn: means over turns."""
        torch = self.torch
        graphs = {name: self._graph(queue) for name, queue in queues.items()}
        passed: dict[str, list[tuple[Any, Any]]] = {name: [] for name in graphs}

        def turn(timed: bool) -> None:
            for name, (graph, _) in graphs.items():
                events = torch.cuda.Event(True), torch.cuda.Event(True)
                events[0].record()
                graph.replay()
                events[1].record()
                if timed:
                    passed[name].append(events)

        until = time.monotonic() + SETTLING_S
        while time.monotonic() < until:
            turn(timed=False)
            torch.cuda.synchronize()
        for _ in range(TURNS):
            turn(timed=True)
        torch.cuda.synchronize()
        for kernel in self._kernels:
            kernel.require_finished(self.gpu.stream)
        return {
            name: 1e3 * sum(a.elapsed_time(b) for a, b in passed[name]) / TURNS / launches
            for name, (_, launches) in graphs.items()
        }

    def close(self) -> None:
        for kernel in self._kernels:
            kernel.close()
        self.buffers.close()
        self.gpu.close()
        self.torch.cuda.empty_cache()

    def _graph(self, queue: Callable[[], None]) -> tuple[Any, int]:
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            queue()
            torch.cuda.synchronize()
            begin = time.monotonic()
            queue()
            torch.cuda.synchronize()
            launches = max(1, int(GRAPH_S / (time.monotonic() - begin)))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(launches):
                    queue()
        return graph, launches


def measure_rates(precision: Precision, without: list[str]) -> Iterator[dict[str, Any]]:
    others = bf16_products if precision == "bf16" else w8a8_products
    for name, experts in LAYERS.items():
        for tokens in TOKENS:
            one_rank = ["ep_degree=1", f"experts={experts}", "remote_fraction=0"]
            workload = layer(name, tokens, *one_rank, precision=precision)
            bench = Bench(workload, "local")
            try:
                fused = {label: bench.queue(one) for label, one in schedules(workload).items()}
                beside = others(bench.shape, workload.top_k)
                chosen = {name: queue for name, queue in beside.items() if name not in without}
                times_us = bench.times_us(fused | chosen)
            finally:
                bench.close()
            rates = {label: bench.shape.flops / us / 1e6 for label, us in times_us.items()}
            row = {
                "layer": name,
                "tokens": tokens,
                "precision": precision,
                "us": times_us,
                "tflops": rates,
            }
            print(f"{name} {tokens:5}: " + ", ".join(f"{k} {v:.0f}" for k, v in rates.items()), flush=True)
            yield row


def measure_schedules(path: StorePath) -> Iterator[dict[str, Any]]:
    for case in CASES:
        yield measure_case(case, schedules(case_layer(case)), path)


def measure_leads(path: StorePath) -> Iterator[dict[str, Any]]:
    leads = (Schedule(kind="interleaved", lead_rows=lead) for lead in LEADS)
    yield measure_case(LEAD_CASE, {one.label: config(one, "bf16") for one in leads}, path)


def measure_case(case: tuple[Any, ...], configs: dict[str, MegaMoeConfig], path: StorePath) -> dict[str, Any]:
    bench = Bench(case_layer(case), path)
    try:
        times_us = bench.times_us({label: bench.queue(one) for label, one in configs.items()})
    finally:
        bench.close()
    print(f"{case}: " + ", ".join(f"{k} {v:.0f} us" for k, v in times_us.items()), flush=True)
    return {"case": case, "path": path, "us": times_us}


def predict(rows: list[dict[str, Any]]) -> None:
    """Measured and simulated ratios of wave to interleaved, beside what the design test says."""
    from xstage_tune.devices.opener import open_simulator
    from xstage_tune.families.kernel_launch import run_kernel

    platform = load_platform(PLATFORM)
    device = open_simulator(platform)
    print("layer                tokens  leaves  routing   bounds: wave  int.   measured  simulated")
    for row in rows:
        name, tokens, remote, alpha = row["case"]
        workload = case_layer(tuple(row["case"]))
        configs = schedules(workload)
        wave, interleaved = (next(k for k in configs if k.startswith(kind)) for kind in KINDS[:2])
        simulated = {
            label: run_kernel(device, workload, configs[label], "host").median_ns("latency")
            for label in (wave, interleaved)
        }
        bound = bind(workload, platform).estimate(configs[interleaved]).predicted
        holds = ["holds" if bound[kind].rate_ok else "broken" for kind in KINDS[:2]]
        print(
            f"{name:20} {tokens:6}  {remote:6.4f}  {f'zipf {alpha}' if alpha else 'balanced':9} "
            f"{holds[0]:>12} {holds[1]:>6} {row['us'][wave] / row['us'][interleaved]:9.3f} "
            f"{simulated[wave] / simulated[interleaved]:10.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("rates", "schedules", "leads", "predict"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--path", default="host")
    parser.add_argument("--precision", choices=tuple(BLOCK_K), default="bf16", help="of rates")
    parser.add_argument("--without", nargs="*", default=[], help="yardsticks to leave out of rates")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.what == "predict":
        predict(json.loads(given.file.read_text()))
        return
    measured = {
        "rates": lambda: measure_rates(given.precision, given.without),
        "schedules": lambda: measure_schedules(given.path),
        "leads": lambda: measure_leads(given.path),
    }[given.what]()
    rows = list(measured)
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
