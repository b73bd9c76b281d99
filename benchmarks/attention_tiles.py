"""Tile times of the attention kernel on this GPU, as ``[[compute.attention]]`` entries of a platform profile.

    python benchmarks/attention_tiles.py [--head-dims 128,64] [--block-m 128,192] [--tokens 8448,33792]
                                         [--heads 6] [--rounds 11] [--busy-ms 30] [-o FILE.toml]

Every tile that is built and fits runs alone on the GPU at both numbers of tokens, so many rounds in an order
of its own each: clocks that move meanwhile move all tiles alike. A visit is so many launches back to back as
keep the GPU busy for that long, since clocks under load are what a deployment has, and its time is that of a
round of tiles. ``--heads`` is of the larger number of tokens; the smaller has as many more as make the rounds
of a launch equal. By default all are whole rounds of 132 SMs. Medians over the visits make a line over the KV
tiles:

- ``staging_ns``: T_RS of the recording variant where a storer warp does the storing. A tile that leaves no
  room for that has the staging of the widest that does;
- ``fixed_ns``: what lines begin with beyond the staging, the median over tiles of one height and head dim;
- ``kv_tile_ns``, sigma: the rest of the larger number's time, by its KV tiles, beside a storer warp where
  that fits;
- ``split``, of two CTAs that share a tile: the slope as sigma's multiple, and what the line begins with
  beyond that of the whole tile, medians likewise: such tiles exchange the same rows.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from xstage_tune.configs.attention_budget import BUILT_BLOCK_M, BUILT_BLOCK_N
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import AttentionConfig
from xstage_tune.devices.attention_profiles import ProfileCase
from xstage_tune.devices.attention_spans import span_figures
from xstage_tune.devices.cuda.attention_kernel import AttentionA2A
from xstage_tune.devices.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.devices.cuda.attention_variants import attention_variant
from xstage_tune.devices.cuda.cache import cached_kernel
from xstage_tune.model.attention import q_loop_kv_tiles
from xstage_tune.ops.runtime import current_gpu, current_stream, import_torch
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile, SplitTile
from xstage_tune.workloads.loader import load_workload

#: What is timed of a tile: beside a storer warp, or where that does not fit without one; and of two CTAs.
KINDS: dict[str, dict[str, Any]] = {
    "staged": {"output_staging": "dedicated-x1"},
    "alone": {"output_staging": "alias-q"},
    "split": {"output_staging": "dedicated-x1", "kv_splits": 2},
}


def limits() -> PlatformProfile:
    """A platform for its architecture's limits alone: its tile times are what is asked."""
    platform = load_platform("h200-host")
    assert platform.compute is not None
    split = SplitTile(kv_tile_ns=1.0, exchange_ns=0.0)
    tiles = tuple(tile.model_copy(update={"split": split}) for tile in platform.compute.attention)
    compute = platform.compute.model_copy(update={"attention": tiles})
    return platform.model_copy(update={"compute": compute})


def variants(block_m: int, head_dim: int) -> Iterator[tuple[str, AttentionConfig]]:
    """All that are built and fit, with their kind."""
    layer = load_workload("fa-a2a/paper", [f"head_dim={head_dim}"])
    platform = limits()
    for block_n in BUILT_BLOCK_N["sm_90"]:
        keys = {"block_m": block_m, "block_n": block_n, "kv_stages": 2, "tile_order": "rotated"}
        fitting = {}
        for kind, knobs in KINDS.items():
            config = AttentionConfig.model_validate(keys | {"store_flavour": "st.v4"} | knobs)
            if not check_config(config, layer, platform).violations:
                fitting[kind] = config
        if "staged" in fitting:
            fitting.pop("alone", None)
        yield from fitting.items()


def compile_variant(config: AttentionConfig, head_dim: int) -> None:
    """Into the cache, where the kernel finds it."""
    for record_spans in (False, True):
        variant = attention_variant(config, head_dim, record_spans=record_spans)
        cached_kernel(variant.source, "sm_90a", variant.defines, variant.names)


class Tensors:
    """Random inputs of one shape, and an output."""

    def __init__(self, tokens: int, heads: int, head_dim: int) -> None:
        torch = import_torch()
        self.shape = AttentionShape(tokens, heads, head_dim)
        size = (tokens, heads, head_dim)
        self._tensors = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self._tensors.append(torch.empty_like(self._tensors[0]))

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        query, key, value, output = (tensor.data_ptr() for tensor in self._tensors)
        return query, key, value, output


@dataclass
class Timed:
    """A variant of a tile at one number of tokens, and what its visits found."""

    kind: str
    config: AttentionConfig
    tensors: Tensors
    rounds_ns: list[float] = field(default_factory=list)

    @property
    def kv_tiles(self) -> int:
        """Of a Q-loop."""
        tokens, config = self.tensors.shape.tokens, self.config
        return q_loop_kv_tiles(tokens=tokens, block_n=config.block_n, kv_splits=config.kv_splits)

    @property
    def round_ns(self) -> float:
        return median(self.rounds_ns)

    def visit(self, busy_ns: float) -> None:
        launches = max(1, round(busy_ns / self._first_launch_ns))
        self.rounds_ns.append(self._time_ns(launches) / launches / self._rounds)

    def staging_ns(self) -> float:
        """T_RS of stores to the GPU's own memory, in the recording variant."""
        kernel, shape = self._build(record_spans=True), self.tensors.shape
        self._launch(kernel, 3)
        case = ProfileCase("", shape.tokens, shape.heads, shape.head_dim, 1, 0, self.config, "local")
        issue = span_figures(kernel.read_spans(current_stream()), case, remote=False).issue
        assert issue is not None
        return issue.p50_ns

    @cached_property
    def _kernel(self) -> AttentionA2A:
        return self._build(record_spans=False)

    @cached_property
    def _first_launch_ns(self) -> float:
        self._time_ns(1)  # loads the kernel
        return self._time_ns(1)

    @property
    def _rounds(self) -> int:
        """Tiles of the team of CTAs that has most."""
        shape = self.tensors.shape
        tiles = shape.heads * -(-shape.tokens // self.config.block_m)
        return -(-tiles * self.config.kv_splits // self._kernel.ctas)

    def _build(self, *, record_spans: bool) -> AttentionA2A:
        return AttentionA2A(current_gpu(), self.tensors.shape, self.config, record_spans=record_spans)

    def _launch(self, kernel: AttentionA2A, launches: int) -> None:
        query, key, value, output = self.tensors.addresses
        prepared = kernel.prepare(query, key, value, Destinations((output,)))
        for _ in range(launches):
            kernel.launch(prepared, current_stream())

    def _time_ns(self, launches: int) -> float:
        torch = import_torch()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self._launch(self._kernel, launches)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e6


@dataclass(frozen=True)
class Line:
    """Time of a round of tiles over the KV tiles of its Q-loops, in ns."""

    slope_ns: float
    begin_ns: float
    long_ns: float
    long_kv_tiles: int
    words: str


def line_through(short: Timed, long: Timed) -> Line:
    slope_ns = (long.round_ns - short.round_ns) / (long.kv_tiles - short.kv_tiles)
    words = (
        f"{short.kind} {short.round_ns / 1e3:.1f} us of {short.kv_tiles} KV tiles, "
        f"{long.round_ns / 1e3:.1f} of {long.kv_tiles}"
    )
    begin_ns = long.round_ns - slope_ns * long.kv_tiles
    return Line(slope_ns, begin_ns, long.round_ns, long.kv_tiles, words)


def entries(timed: list[Timed], shapes: str) -> Iterator[str]:
    """Of the tiles of one height and head dim, narrow ones first."""
    visits: dict[int, dict[str, list[Timed]]] = {}
    for one in timed:
        visits.setdefault(one.config.block_n, {}).setdefault(one.kind, []).append(one)
    lines = {
        block_n: {kind: line_through(*both) for kind, both in kinds.items()}
        for block_n, kinds in sorted(visits.items())
    }
    wholes = {block_n: kinds.get("staged") or kinds["alone"] for block_n, kinds in lines.items()}
    staging = staging_of(visits)
    fixed_ns = max(0.0, median(wholes[block_n].begin_ns - staging[block_n] for block_n in staging))
    pairs = [(wholes[block_n], kinds["split"]) for block_n, kinds in lines.items() if "split" in kinds]
    for block_n, staging_ns in staging.items():
        whole = wholes[block_n]
        sigma_ns = (whole.long_ns - staging_ns - fixed_ns) / whole.long_kv_tiles
        yield "[[compute.attention]]"
        yield 'dtype = "bf16"'
        yield f"block_m = {timed[0].config.block_m}"
        yield f"block_n = {block_n}"
        yield f"head_dim = {timed[0].tensors.shape.head_dim}"
        yield f"kv_tile_ns = {sigma_ns:.0f}.0"
        yield f"fixed_ns = {fixed_ns:.0f}.0"
        yield f"staging_ns = {staging_ns:.0f}.0"
        if pairs:
            split_ns = sigma_ns * median(split.slope_ns / one.slope_ns for one, split in pairs)
            exchange_ns = max(0.0, median(split.begin_ns - one.begin_ns for one, split in pairs))
            yield f"split = {{ kv_tile_ns = {split_ns:.0f}.0, exchange_ns = {exchange_ns:.0f}.0 }}"
        gpu_name = import_torch().cuda.get_device_name()
        words = "; ".join(line.words for line in lines[block_n].values())
        yield f'source = "benchmarks/attention_tiles.py on one {gpu_name}: rounds of {shapes}; {words}"'
        yield ""


def staging_of(visits: dict[int, dict[str, list[Timed]]]) -> dict[int, float]:
    """By block_n, of all but those narrower than the narrowest with a storer warp."""
    staging: dict[int, float] = {}
    widest_ns = None
    for block_n, kinds in sorted(visits.items()):
        if "staged" in kinds:
            widest_ns = kinds["staged"][1].staging_ns()
        if widest_ns is not None:
            staging[block_n] = widest_ns
    return staging


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", type=numbers, default="128,64")
    parser.add_argument("--block-m", type=numbers, default=",".join(map(str, BUILT_BLOCK_M["sm_90"])))
    parser.add_argument("--tokens", type=numbers, default="8448,33792", help="two numbers, the smaller first")
    parser.add_argument("--heads", type=int, default=6, help="of the rank, at the larger number of tokens")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--busy-ms", type=float, default=30.0, help="of a visit")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.toml")
    options = parser.parse_args()
    groups = [
        (head_dim, list(variants(block_m, head_dim)))
        for block_m, head_dim in itertools.product(options.block_m, options.head_dims)
    ]
    with ProcessPoolExecutor() as pool:
        compilations = [
            pool.submit(compile_variant, config, head_dim)
            for head_dim, group in groups
            for _, config in group
        ]
    for compilation in compilations:
        compilation.result()
    shapes = [(tokens, options.heads * max(options.tokens) // tokens) for tokens in options.tokens]
    tensors = {dim: [Tensors(*shape, dim) for shape in shapes] for dim in options.head_dims}
    timed = [
        [Timed(kind, config, one) for kind, config in group for one in tensors[dim]] for dim, group in groups
    ]
    in_turn = list(itertools.chain.from_iterable(timed))
    for number in range(options.rounds):
        first = number * len(in_turn) // options.rounds
        for one in in_turn[first:] + in_turn[:first]:
            one.visit(options.busy_ms * 1e6)
    words = " and ".join(f"{tokens:,} tokens, {heads} heads" for tokens, heads in shapes)
    found = "\n".join(itertools.chain.from_iterable(entries(group, words) for group in timed))
    print(found)
    if options.output is not None:
        options.output.write_text(found + "\n")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
