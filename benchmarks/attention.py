"""The attention kernel alone, beside cuDNN's SDPA on the same tensors.

    python benchmarks/attention.py [--tokens 8192,16384,32768] [--heads 3,4,5,6] [--repeats 12]
                                   [--limit-s 120] [-o FILE.json]

Needs torch with cuDNN. cuDNN and the kernel's tiles are graphs of launches back to back, replayed in balanced
order; cuDNN's rate is the yardstick. Each number of tokens runs in a process of its own, which ends at its
time limit: a kernel that hangs costs its own lines. Lines are printed as they come, the table at the end from
those that came.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

from xstage_tune.base.errors import XStageError
from xstage_tune.experiments.launch_order import balanced
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops import default_attention_config

HEAD_DIM = 128
CUDNN = "cuDNN SDPA"
_RESULT = "result "
#: A replay lasts about this long: clocks follow the power that a kernel draws within milliseconds.
_REPLAY_NS = 20e6


def main() -> None:
    options = _options()
    if options.worker:
        try:
            for line in _measure(options):
                print(_RESULT + json.dumps(line), flush=True)
        except XStageError as error:
            sys.exit(f"{error.message}; {error.hint}")
        return
    results: list[dict[str, Any]] = []
    for tokens in options.tokens:
        results += _run_tokens(tokens, options)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=2) + "\n")
    print(_table(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=_numbers, default=(8192, 16384, 32768))
    parser.add_argument("--heads", type=_numbers, default=(3, 4, 5, 6))
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _run_tokens(tokens: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Results of a worker, as many as it came to."""
    command = [
        sys.executable, __file__, "--worker", "--tokens", str(tokens),
        "--heads", ",".join(map(str, options.heads)), "--repeats", str(options.repeats),
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
        print(f"{tokens} tokens: ended with {code} (limit {options.limit_s:g} s)", flush=True)
    return results


def _measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """cuDNN and the kernel's tiles on the same tensors."""
    import torch

    (tokens,) = options.tokens
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for heads in options.heads:
        generator = torch.Generator(device="cuda").manual_seed(heads)
        size = (tokens, heads, HEAD_DIM)
        q, k, v = (torch.randn(size, device="cuda", generator=generator).bfloat16() for _ in range(3))
        candidates = {CUDNN: _cudnn(q, k, v)}
        chosen = default_attention_config(tokens, heads, sms)
        for config in _tiles(chosen):
            mark = " (default)" if config == chosen else ""
            name = f"{config.block_m}x{config.block_n} {config.output_staging}{mark}"
            candidates[name] = _kernel(q, k, v, config)
        for name, times_us in _balanced(candidates, options.repeats).items():
            yield {"tokens": tokens, "heads": heads, "name": name, "times_us": times_us}


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


def _graph(run: Callable[[], Any]) -> Callable[[], float]:
    """Time of a launch in us, from a replay of launches back to back behind an untimed one."""
    import torch

    from xstage_tune.cuda.graph_timing import launches_lasting

    def elapsed_us(queue: Callable[[], Any]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        queue()
        begin.record()
        queue()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    run()
    launches = launches_lasting(_REPLAY_NS, elapsed_us(run) * 1e3)
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


def _line(result: dict[str, Any]) -> str:
    times_us = result["times_us"]
    return (
        f"M={result['tokens']:<6} h={result['heads']} {result['name']:28} "
        f"{median(times_us):10.1f} us [{min(times_us):.1f}, {max(times_us):.1f}]"
    )


def _table(results: list[dict[str, Any]]) -> str:
    """A row a result: its time, its rate, and how it compares with cuDNN on the same tensors."""
    cases: dict[tuple[int, int], dict[str, float]] = {}
    for result in results:
        of_case = cases.setdefault((result["tokens"], result["heads"]), {})
        of_case[result["name"]] = median(result["times_us"])
    rows = [f"{'tokens':>6} {'heads':>5} {'kernel':30} {'us':>10} {'TFLOP/s':>8}  of cuDNN's rate"]
    for (tokens, heads), times_us in cases.items():
        flops = 4 * tokens**2 * HEAD_DIM * heads
        for name, time_us in times_us.items():
            compared = f"{100 * times_us[CUDNN] / time_us:.1f}%" if CUDNN in times_us else ""
            rows.append(
                f"{tokens:6} {heads:5} {name:30} {time_us:10.1f} {flops / time_us / 1e6:8.1f}  {compared}"
            )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
