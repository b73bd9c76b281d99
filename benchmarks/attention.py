"""The attention kernel on one GPU: alone beside cuDNN, fused with the All-to-All beside the serial versions.

    python benchmarks/attention.py [--part alone|fused] [--tokens 8192,16384,32768] [--heads 3,4,5,6]
                                   [--path host|peer|local] [--repeats 12] [--limit-s 120] [-o FILE.json]

``alone`` needs torch with cuDNN. cuDNN's SDPA and the kernel's tiles are graphs of launches back to back on
the same tensors, replayed in balanced order; the best of cuDNN's rate is the yardstick. ``fused`` is what
``xstage-tune profile`` measures, with the tile that the kernel takes by default, at degree 8.

Each part runs for each number of tokens in a process of its own, which ends at its time limit: a kernel that
hangs costs its own lines. Lines are printed as they come, the table at the end from those that came.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

from xstage_tune.configs.schema import AttentionConfig
from xstage_tune.errors import XStageError
from xstage_tune.launch_order import balanced
from xstage_tune.ops import default_attention_config

HEAD_DIM, DEGREE = 128, 8
_RESULT = "result "
_PARTS = ("alone", "fused")
_REPLAY_US = 20_000.0


def main() -> None:
    options = _options()
    if options.worker:
        try:
            for line in _WORKERS[options.part](options):
                print(_RESULT + json.dumps(line), flush=True)
        except XStageError as error:
            sys.exit(f"{error.message}; {error.hint}")
        return
    results: list[dict[str, Any]] = []
    for part in (options.part,) if options.part else _PARTS:
        for tokens in options.tokens:
            results += _run_part(part, tokens, options)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=2) + "\n")
    print(_table(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=_PARTS)
    parser.add_argument("--tokens", type=_numbers, default=(8192, 16384, 32768))
    parser.add_argument("--heads", type=_numbers, default=(3, 4, 5, 6))
    parser.add_argument("--path", choices=("host", "peer", "local"), default="host")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _run_part(part: str, tokens: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Results of a worker, as many as it came to."""
    heads = ",".join(map(str, options.heads))
    command = [
        sys.executable, __file__, "--worker", "--part", part, "--tokens", str(tokens), "--heads", heads,
        "--path", options.path, "--repeats", str(options.repeats),
    ]  # fmt: skip
    results = []
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    limit = Timer(options.limit_s, worker.kill)
    limit.start()
    try:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith(_RESULT):
                results.append(json.loads(line.removeprefix(_RESULT)))
                print(_line(results[-1]), flush=True)
            else:
                print(line, end="", flush=True)
        code = worker.wait()
    finally:
        limit.cancel()
    if code:
        print(f"{part}, {tokens} tokens: ended with {code} (limit {options.limit_s:g} s)", flush=True)
    return results


def _alone(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """cuDNN and the kernel's tiles on the same tensors."""
    import torch

    (tokens,) = options.tokens
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for heads in options.heads:
        generator = torch.Generator(device="cuda").manual_seed(heads)
        size = (tokens, heads, HEAD_DIM)
        q, k, v = (torch.randn(size, device="cuda", generator=generator).bfloat16() for _ in range(3))
        candidates = {"cuDNN SDPA": _cudnn(q, k, v)}
        chosen = default_attention_config(tokens, heads, sms)
        for config in _tiles(chosen):
            mark = " (default)" if config == chosen else ""
            candidates[f"{config.block_m}x{config.block_n} {config.output_staging}{mark}"] = _kernel(
                q, k, v, config
            )
        samples = _balanced(candidates, options.repeats)
        for name, times_us in samples.items():
            yield _result("alone", tokens, heads, name, times_us)


def _tiles(chosen: AttentionConfig) -> tuple[AttentionConfig, ...]:
    """The default's tile, and the best of either height."""
    rows = ((128, 176, "alias-v"), (192, 128, "alias-q"), (192, 80, "alias-q"))
    others = (
        chosen.model_copy(update={"block_m": m, "block_n": n, "output_staging": staging, "kv_stages": 2})
        for m, n, staging in rows
    )
    return tuple(dict.fromkeys((chosen, *others)))


def _cudnn(q: Any, k: Any, v: Any) -> Callable[[], float]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    by_head = [tensor.transpose(0, 1)[None].contiguous() for tensor in (q, k, v)]

    def run() -> None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            scaled_dot_product_attention(*by_head)

    return _graph(run)


def _kernel(q: Any, k: Any, v: Any, config: AttentionConfig) -> Callable[[], float]:
    import torch

    from xstage_tune.ops import attention_a2a

    output = torch.empty_like(q)
    return _graph(lambda: attention_a2a(q, k, v, [output.data_ptr()], config))


def _graph(run: Callable[[], None]) -> Callable[[], float]:
    """Time of a launch in us, from a replay of launches back to back behind an untimed one."""
    import torch

    def elapsed_us(queue: Callable[[], None]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        queue()
        begin.record()
        queue()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    run()
    launches = max(3, min(500, round(_REPLAY_US / elapsed_us(run))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            run()

    def replay() -> float:
        _ = run  # keeps the tensors whose addresses the graph holds
        return elapsed_us(graph.replay) / launches

    return replay


def _balanced(candidates: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    names = list(candidates)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(repeats):
        for index in balanced(len(names), repeat):
            samples[names[index]].append(candidates[names[index]]())
    return samples


def _fused(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What ``profile`` measures, for every number of local heads."""
    from xstage_tune.devices.attention_profiles import IMPLEMENTATIONS, ProfileCase, ReplayFigures
    from xstage_tune.devices.cuda.attention_profiles import CudaProfiles
    from xstage_tune.devices.cuda.gpu import Gpu
    from xstage_tune.profiling.procedure import profile_case, require_right

    (tokens,) = options.tokens
    device = CudaProfiles(Gpu.open(0))
    for heads in options.heads:
        config = default_attention_config(tokens, heads, device.describe().sm_count)
        case = ProfileCase("", tokens, heads, HEAD_DIM, DEGREE, DEGREE - 1, config, options.path)
        times_us: dict[str, list[float]] = {name: [] for name in IMPLEMENTATIONS}
        for launch in profile_case(device, case, options.repeats):
            require_right(launch)
            if isinstance(launch.figures, ReplayFigures):
                times_us[launch.implementation].append(launch.figures.time_ns / 1e3)
        for name, own in times_us.items():
            yield _result("fused", tokens, heads, name, own)
    device.close()


_WORKERS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "alone": _alone,
    "fused": _fused,
}


def _result(part: str, tokens: int, heads: int, name: str, times_us: list[float]) -> dict[str, Any]:
    return {"part": part, "tokens": tokens, "heads": heads, "name": name, "times_us": times_us}


@dataclass(frozen=True)
class _Case:
    part: str
    tokens: int
    heads: int


def _line(result: dict[str, Any]) -> str:
    times_us = result["times_us"]
    return (
        f"{result['part']:6} M={result['tokens']:<6} h={result['heads']} {result['name']:28} "
        f"{median(times_us):10.1f} us [{min(times_us):.1f}, {max(times_us):.1f}]"
    )


def _table(results: list[dict[str, Any]]) -> str:
    """A row a result: its time, its rate, and how it compares with the yardstick of its case."""
    cases: dict[_Case, dict[str, float]] = {}
    for result in results:
        case = _Case(result["part"], result["tokens"], result["heads"])
        cases.setdefault(case, {})[result["name"]] = median(result["times_us"])
    rows = [
        f"{'part':6} {'tokens':>6} {'heads':>5} {'implementation':30} {'us':>10} {'TFLOP/s':>8}  compared"
    ]
    for case, times_us in cases.items():
        flops = 4 * case.tokens**2 * HEAD_DIM * case.heads
        for name, time_us in times_us.items():
            rate = "-" if name == "all-to-all" else f"{flops / time_us / 1e6:.1f}"
            rows.append(
                f"{case.part:6} {case.tokens:6} {case.heads:5} {name:30} {time_us:10.1f} {rate:>8}  "
                f"{_compared(case, name, times_us)}"
            )
    return "\n".join(rows)


def _compared(case: _Case, name: str, times_us: dict[str, float]) -> str:
    if case.part == "alone":
        yardstick = times_us.get("cuDNN SDPA")
        return f"{100 * yardstick / times_us[name]:.1f}% of cuDNN's rate" if yardstick else ""
    alone, fused = times_us.get("attention"), times_us.get("fused")
    if alone is None or fused is None:
        return ""
    if name == "fused":
        return f"E_res {fused - alone:.1f} us, {100 * (fused - alone) / alone:.2f}% of T_FA"
    if not name.startswith("serial"):
        return ""
    serial = times_us[name]
    hidden = f"H {100 * (1 - (fused - alone) / (serial - alone)):.1f}%" if serial > alone else "H -"
    return f"fused is {serial / fused:.3f}x as fast, {hidden}"


if __name__ == "__main__":
    main()
