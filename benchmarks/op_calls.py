"""What a call of the attention costs the host, and how long it takes, beside the bare launch and SDPA.

    python benchmarks/op_calls.py [--tokens 512,1023,4608,8192] [--heads 2,3] [--calls 400] [--repeats 9]
                                  [-o FILE.json]

Needs one Hopper GPU. The group has one rank, this process: a call is the attention, its signals, the wait and
the copy of the rows, as on any number of ranks. Host time: of a number of calls back to back, none of which
waits for the GPU. Time: of the same calls until the GPU is done. Medians of repeats, candidates in turn. What
is measured of the first size in two seconds before that is thrown away.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.experiments.launch_order import balanced
from xstage_tune.ops import attention_a2a, close_group
from xstage_tune.ops.runtime import kernel_for

HEAD_DIM = 128
_WARM_UP_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=_numbers, default=(512, 1023, 4608, 8192))
    parser.add_argument("--heads", type=_numbers, default=(2, 3))
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.cuda.set_device(0)
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl", init_method=f"file://{folder}/meet", rank=0, world_size=1,
            device_id=torch.device("cuda", 0),
        )  # fmt: skip
        begin = time.perf_counter()
        while time.perf_counter() - begin < _WARM_UP_S:
            measure(options.tokens[0], options.heads[0], options)
        print(f"{'tokens':>6} {'heads':>5} {'call':24} {'host us':>8} {'us':>9}")
        for tokens in options.tokens:
            for heads in options.heads:
                for name, (host_us, time_us) in measure(tokens, heads, options).items():
                    rows.append(
                        {"tokens": tokens, "heads": heads, "call": name, "host_us": host_us, "us": time_us}
                    )
                    print(f"{tokens:6} {heads:5} {name:24} {host_us:8.2f} {time_us:9.1f}", flush=True)
        close_group(dist.group.WORLD)
        dist.destroy_process_group()
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


def measure(tokens: int, heads: int, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Of every candidate the host's time of a call and the whole one, in us."""
    q, k, v = torch.randn((3, tokens, heads, HEAD_DIM), device="cuda", dtype=torch.bfloat16).unbind(0)
    out = torch.empty_like(q)
    addresses = [out.data_ptr()]
    group = dist.group.WORLD
    by_head = [tensor.transpose(0, 1)[None].contiguous() for tensor in (q, k, v)]

    def cudnn() -> None:
        scaled_dot_product_attention(*by_head)

    graph = torch.cuda.CUDAGraph()
    candidates: dict[str, Callable[[], Any]] = {
        "bare launch": bare_launch(q, k, v, out),
        "addresses": lambda: attention_a2a(q, k, v, addresses),
        "group": lambda: attention_a2a(q, k, v, group),
        "group, out=": lambda: attention_a2a(q, k, v, group, out=out),
        "cuDNN SDPA": cudnn,
    }
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for call in candidates.values():
            call()
        with torch.cuda.graph(graph):
            attention_a2a(q, k, v, group)
        candidates["group, a graph of one"] = graph.replay
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
        names = list(candidates)
        for repeat in range(options.repeats):
            for index in balanced(len(names), repeat):
                samples[names[index]].append(timed(candidates[names[index]], options.calls))
    return {
        name: (median(host for host, _ in found), median(whole for _, whole in found))
        for name, found in samples.items()
    }


def bare_launch(q: Any, k: Any, v: Any, out: Any) -> Callable[[], None]:
    """The launch itself, its arguments made before: what no call can be cheaper than."""
    tokens, heads, head_dim = q.shape
    kernel = kernel_for(0, AttentionShape(tokens, heads, head_dim), None, None)
    prepared = kernel.prepare(q.data_ptr(), k.data_ptr(), v.data_ptr(), Destinations((out.data_ptr(),)))
    stream = torch.cuda.current_stream().cuda_stream
    return lambda: prepared.queue(stream)


def timed(call: Callable[[], Any], calls: int) -> tuple[float, float]:
    """The host's time of a call, and the whole one, in us."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    queued = time.perf_counter()
    torch.cuda.synchronize()
    return (queued - begin) * 1e6 / calls, (time.perf_counter() - begin) * 1e6 / calls


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    main()
