"""The fused MoE kernel on this GPU: its rate beside others', and its schedules where stores leave.

    python benchmarks/megamoe.py layers -o FILE.json
    python benchmarks/megamoe.py rates [--precision w8a8] -o FILE.json
    python benchmarks/megamoe.py schedules [--path host] -o FILE.json
    python benchmarks/megamoe.py leads [--path host] -o FILE.json
    python benchmarks/megamoe.py predict FILE.json

``layers``: whole layers of one rank in w8a8, balanced routing, EP 8's local experts, each under its fastest
schedule. Times in us; of them what dispatch and the reduction add to the kernel on a full pool; beside them
DeepGEMM's of the same operands where it is installed. See ``megamoe_layer.py``.

``rates``: the same rank's kernel on a full pool, without a reduction; beside it what
``megamoe_yardsticks.py`` has. All run in turn, in graphs of some milliseconds, at the clocks of all of them.

``schedules``: the rank that receives most of EP 8, whose rows leave in part; every schedule with its usual
parameter, in turn. ``leads``: one of these cases with many a lead D. ``predict`` puts the simulator's times
and the design test beside measured schedules; it needs no GPU. A case's first kernel is checked beforehand.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from in_turn import times_us
from megamoe_layer import measure_layer
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


def one_rank(name: str, experts: int, tokens: int, precision: Precision) -> MoeWorkload:
    """A layer of which so many experts, and all tokens, are one rank's; balanced."""
    alone = ["ep_degree=1", f"experts={experts}", "remote_fraction=0"]
    return layer(name, tokens, *alone, precision=precision)


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
        """Of one launch of each, in turn."""
        found = times_us(queues)
        for kernel in self._kernels:
            kernel.require_finished(self.gpu.stream)
        return found

    def close(self) -> None:
        for kernel in self._kernels:
            kernel.close()
        self.buffers.close()
        self.gpu.close()
        self.torch.cuda.empty_cache()


def measure_rates(precision: Precision, sizes: list[int], without: list[str]) -> Iterator[dict[str, Any]]:
    others = bf16_products if precision == "bf16" else w8a8_products
    for name, experts in LAYERS.items():
        for tokens in sizes:
            workload = one_rank(name, experts, tokens, precision)
            bench = Bench(workload, "local")
            try:
                fused = {label: bench.queue(one) for label, one in schedules(workload).items()}
                chosen = {name: queue for name, queue in others(bench.shape).items() if name not in without}
                taken_us = bench.times_us(fused | chosen)
            finally:
                bench.close()
            rates = {label: bench.shape.flops / us / 1e6 for label, us in taken_us.items()}
            row = {
                "layer": name,
                "tokens": tokens,
                "precision": precision,
                "us": taken_us,
                "tflops": rates,
            }
            print(f"{name} {tokens:5}: " + ", ".join(f"{k} {v:.0f}" for k, v in rates.items()), flush=True)
            yield row


def measure_layers(sizes: list[int]) -> Iterator[dict[str, Any]]:
    import torch

    from xstage_tune.cuda.gpu import Gpu

    torch.zeros(1, device="cuda")
    gpu = Gpu.open(0)
    print(
        f"{'layer':18} {'tokens':>6}  {'schedule':16} {'whole':>6} {'dispatch':>9} {'full pool':>10} "
        f"{'reduction':>10} {'DeepGEMM':>9} {'over whole':>10}"
    )
    for tokens in sizes:
        for name, experts in LAYERS.items():
            workload = one_rank(name, experts, tokens, "w8a8")
            row = {"layer": name, "tokens": tokens, **measure_layer(gpu, workload, schedules(workload))}
            best, us = min(row["us"].items(), key=lambda item: item[1]["whole"])
            beside = row["deep_gemm_us"]
            print(
                f"{name:18} {tokens:6,}  {best:16} {us['whole']:6.0f} "
                f"{us['no reduction'] - us['full pool']:9.0f} {us['full pool']:10.0f} "
                f"{us['whole'] - us['no reduction']:10.0f} "
                + ("" if beside is None else f"{beside:9.0f} {beside / us['whole']:10.2f}"),
                flush=True,
            )
            torch.cuda.empty_cache()
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
        taken_us = bench.times_us({label: bench.queue(one) for label, one in configs.items()})
    finally:
        bench.close()
    print(f"{case}: " + ", ".join(f"{k} {v:.0f} us" for k, v in taken_us.items()), flush=True)
    return {"case": case, "path": path, "us": taken_us}


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
    parser.add_argument("what", choices=("layers", "rates", "schedules", "leads", "predict"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--path", default="host")
    parser.add_argument("--precision", choices=tuple(BLOCK_K), default="bf16", help="of rates")
    parser.add_argument("--tokens", nargs="*", type=int, default=TOKENS, help="sizes of layers and rates")
    parser.add_argument("--without", nargs="*", default=[], help="yardsticks to leave out of rates")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.what == "predict":
        predict(json.loads(given.file.read_text()))
        return
    measured = {
        "layers": lambda: measure_layers(given.tokens),
        "rates": lambda: measure_rates(given.precision, given.tokens, given.without),
        "schedules": lambda: measure_schedules(given.path),
        "leads": lambda: measure_leads(given.path),
    }[given.what]()
    rows = []
    for row in measured:
        rows.append(row)
        if given.output:
            given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
