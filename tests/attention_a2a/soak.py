"""Random calls of several ranks on one GPU, every row of every result compared.

    python -m tests.attention_a2a.soak [--calls 100000] [--ranks 4] [--seed 0]

Shapes, inputs, streams, delays, the order of the ranks, eager calls and replays of graphs of several calls
are drawn anew each time. What a call should return is what each rank's attention alone gives, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams that wait must not hold others up

import torch

from tests.attention_a2a.virtual_ranks import VirtualRanks
from xstage_tune.ops import attention_a2a, check_group

#: Tokens, KV tokens, heads, head_dim.
SHAPES = ((1, 1, 1, 128), (130, 130, 1, 64), (517, 517, 2, 128), (300, 41, 3, 64), (1029, 900, 1, 128))
_INPUTS = 3
_GRAPHS = 6
_STREAMS = 2
_MOST_DELAY_CYCLES = 200_000


@dataclass(frozen=True)
class Step:
    """One call of all ranks: of which shape, with which of its inputs."""

    shape: int
    inputs: int


class Soak:
    """Calls, replays, and how many rows were wrong."""

    def __init__(self, ranks: VirtualRanks, seed: int) -> None:
        self._ranks = ranks
        self._draw = random.Random(seed)
        self._streams = [
            [stream, *(torch.cuda.Stream() for _ in range(_STREAMS - 1))] for stream in ranks.streams
        ]
        self._last = list(ranks.streams)
        self._wrong = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in ranks.groups]
        self._inputs: dict[tuple[Step, int], list[Any]] = {}
        self._expected: dict[tuple[Step, int], Any] = {}
        self.calls = 0
        for shape in range(len(SHAPES)):
            for inputs in range(_INPUTS):
                self._make(Step(shape, inputs), seed)
        # Who first uses a kernel or a stream's memory may wait for the GPU, which later waits for all ranks.
        torch.cuda._sleep(1)
        for (step, rank), rows in self._expected.items():
            for stream in self._streams[rank]:
                with torch.cuda.stream(stream):
                    self._compare(step, rank, rows.clone())
        torch.cuda.synchronize()
        for shape in range(len(SHAPES)):
            ranks.together(lambda rank, _, step=Step(shape, 0): self._call(step, rank))
        self._graphs = [self._capture() for _ in range(_GRAPHS)]
        torch.cuda.synchronize()

    def run(self, calls: int) -> int:
        """So many calls and a few more, replayed ones among them; the number of rows that were wrong."""
        first = self.calls
        while self.calls - first < calls:
            order = list(range(len(self._ranks)))
            self._draw.shuffle(order)
            graph = self._draw.choice(self._graphs) if self._draw.random() < 0.5 else None
            step = self._step()
            for rank in order:
                stream = self._last[rank] if graph is not None else self._draw.choice(self._streams[rank])
                self._last[rank] = stream
                with torch.cuda.stream(stream):
                    if self._draw.random() < 0.3:
                        torch.cuda._sleep(self._draw.randrange(_MOST_DELAY_CYCLES))
                    if graph is not None:
                        graph[rank].replay()
                    else:
                        self._call(step, rank)
            self.calls += len(order) * (1 if graph is None else graph[0].steps)
        torch.cuda.synchronize()
        for group in self._ranks.groups:
            check_group(group)
        return sum(int(wrong) for wrong in self._wrong)

    def _step(self) -> Step:
        return Step(self._draw.randrange(len(SHAPES)), self._draw.randrange(_INPUTS))

    def _call(self, step: Step, rank: int) -> None:
        result = attention_a2a(*self._inputs[step, rank], self._ranks.groups[rank], timeout_s=20.0)
        self._compare(step, rank, result)

    def _compare(self, step: Step, rank: int, result: Any) -> None:
        self._wrong[rank] += (result != self._expected[step, rank]).any(-1).any(-1).sum()

    def _capture(self) -> list[Any]:
        """Of every rank a graph of the same calls, whose results are used only behind the last."""
        steps = [self._step() for _ in range(self._draw.randrange(1, 4))]
        graphs = []
        for rank, group in enumerate(self._ranks.groups):
            graph: Any = _Graph(len(steps))
            with torch.cuda.graph(graph.graph, stream=self._ranks.streams[rank]):
                results = [attention_a2a(*self._inputs[step, rank], group, timeout_s=20.0) for step in steps]
                for step, result in zip(steps, results, strict=True):
                    self._compare(step, rank, result)
            graphs.append(graph)
        return graphs

    def _make(self, step: Step, seed: int) -> None:
        tokens, kv_tokens, heads, head_dim = SHAPES[step.shape]
        ranks = len(self._ranks)
        generator = torch.Generator(device="cuda").manual_seed(seed + 100 * step.shape + step.inputs)
        alone = []
        for rank in range(ranks):
            qkv = [
                torch.randn((rows, heads, head_dim), device="cuda", generator=generator).bfloat16()
                for rows in (tokens, kv_tokens, kv_tokens)
            ]
            self._inputs[step, rank] = qkv
            alone.append(torch.empty_like(qkv[0]))
            attention_a2a(*qkv, [alone[-1].data_ptr()])
        every = torch.cat(alone, dim=1)
        rows = -(-tokens // ranks)
        for rank in range(ranks):
            self._expected[step, rank] = every[rank * rows : (rank + 1) * rows].clone()


class _Graph:
    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.graph = torch.cuda.CUDAGraph()

    def replay(self) -> None:
        self.graph.replay()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with torch.no_grad(), VirtualRanks(options.ranks) as ranks:
        soak = Soak(ranks, options.seed)
        begin = time.monotonic()
        wrong = soak.run(options.calls)
        elapsed_s = time.monotonic() - begin
        print(f"{soak.calls} calls of {options.ranks} ranks in {elapsed_s:.1f} s: {wrong} wrong rows")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
