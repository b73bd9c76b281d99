"""Tile times of the attention kernel on this GPU, as ``[[compute.attention]]`` entries of a platform profile.

    python benchmarks/attention_tiles.py [--head-dims 128,64] [--block-m 128,192] [--tokens 16384] [--heads 3]
                                         [--rounds 9] [-o FILE.toml]

Every tile that is built and fits runs in turn, so many rounds, each time from another one on: clocks that
move meanwhile move all tiles alike. A visit launches the recording variant three times back to back and takes
the spans of the last; while they are read the GPU rests, so its power limit holds nothing down. Times are
medians over the rounds of median spans of the kernel alone:

- sigma: the Q-loop over its KV tiles, beside a storer warp where that fits;
- staging: T_RS where a storer warp does the storing, of a whole tile and of a CTA's part of a split one. A
  tile that leaves no room for that has the staging of the widest that does;
- exchange: what the Q-loop of a split tile takes beyond sigma for each of its KV tiles. It moves the same
  rows whatever block_n is, so tiles of one height and head dim have the median of theirs.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from xstage_tune.cuda.attention_kernel import AttentionA2A, PreparedLaunch
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import attention_variant
from xstage_tune.cuda.cache import cached_kernel
from xstage_tune.families.attention_a2a.budget import BUILT_BLOCK_M, BUILT_BLOCK_N
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.spans import span_figures
from xstage_tune.families.attention_a2a.timing import ProfileCase, SpanFigures
from xstage_tune.families.binding import check_config
from xstage_tune.families.workload_files import load_workload
from xstage_tune.model.attention import q_loop_kv_tiles
from xstage_tune.ops.runtime import current_gpu, current_stream, import_torch
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile, SplitTile

#: Launches of a visit; the last one's spans count.
LAUNCHES = 3
#: What is timed of a tile: the Q-loop with all registers, one beside a storer warp, and one of two CTAs.
KINDS: dict[str, dict[str, Any]] = {
    "alone": {"output_staging": "alias-q"},
    "staged": {"output_staging": "dedicated-x1"},
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
    for block_n, (kind, knobs) in itertools.product(BUILT_BLOCK_N["sm_90"], KINDS.items()):
        keys = {"block_m": block_m, "block_n": block_n, "kv_stages": 2, "tile_order": "rotated"}
        config = AttentionConfig.model_validate(keys | {"store_flavour": "st.v4"} | knobs)
        if not check_config(config, layer, platform).violations:
            yield kind, config


def compile_variant(config: AttentionConfig, head_dim: int) -> None:
    """Into the cache, where the kernel finds it."""
    variant = attention_variant(config, head_dim, record_spans=True)
    cached_kernel(variant.source, "sm_90a", variant.defines, variant.names)


@dataclass
class Timed:
    """A variant made ready on the GPU, and what its visits found, in ns."""

    kind: str
    config: AttentionConfig
    case: ProfileCase
    kernel: AttentionA2A
    launch: PreparedLaunch
    q_loops_ns: list[float] = field(default_factory=list)
    issues_ns: list[float] = field(default_factory=list)

    def visit(self) -> None:
        stream = current_stream()
        for _ in range(LAUNCHES):
            self.kernel.launch(self.launch, stream)
        figures: SpanFigures = span_figures(self.kernel.read_spans(stream), self.case, remote=False)
        assert figures.q_loop is not None
        assert figures.issue is not None
        self.q_loops_ns.append(figures.q_loop.p50_ns)
        self.issues_ns.append(figures.issue.p50_ns)

    @property
    def kv_tiles(self) -> int:
        config = self.config
        return q_loop_kv_tiles(tokens=self.case.tokens, block_n=config.block_n, kv_splits=config.kv_splits)

    @property
    def q_loop_ns(self) -> float:
        return median(self.q_loops_ns)

    @property
    def issue_ns(self) -> float:
        return median(self.issues_ns)


class Tensors:
    """Random inputs of one head dim, and an output."""

    def __init__(self, tokens: int, heads: int, head_dim: int) -> None:
        torch = import_torch()
        size = (tokens, heads, head_dim)
        self.shape = AttentionShape(tokens, heads, head_dim)
        self._inputs = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self._output = torch.empty_like(self._inputs[0])

    def timed(self, kind: str, config: AttentionConfig) -> Timed:
        shape = self.shape
        kernel = AttentionA2A(current_gpu(), shape, config, record_spans=True)
        query, key, value = (tensor.data_ptr() for tensor in self._inputs)
        destinations = Destinations((self._output.data_ptr(),))
        case = ProfileCase("", shape.tokens, shape.heads, shape.head_dim, 1, 0, config, "local")
        return Timed(kind, config, case, kernel, kernel.prepare(query, key, value, destinations))


def counted(kinds: dict[str, Timed]) -> Timed:
    """Whose Q-loop is a tile's: beside a storer warp where it fits, since a search has to rank those."""
    return kinds.get("staged", kinds["alone"])


def sigma_ns(kinds: dict[str, Timed]) -> float:
    return counted(kinds).q_loop_ns / counted(kinds).kv_tiles


def entries(timed: list[Timed]) -> Iterator[str]:
    """Of the tiles of one height and head dim, narrow ones first."""
    gpu_name = import_torch().cuda.get_device_name()
    tiles: dict[int, dict[str, Timed]] = {}
    for one in timed:
        tiles.setdefault(one.config.block_n, {})[one.kind] = one
    exchanges_ns = [
        kinds["split"].q_loop_ns - kinds["split"].kv_tiles * sigma_ns(kinds)
        for kinds in tiles.values()
        if "split" in kinds
    ]
    staging_ns: float | None = None
    split_staging_ns: float | None = None
    for block_n, kinds in sorted(tiles.items()):
        loop = counted(kinds)
        staging_ns = kinds["staged"].issue_ns if "staged" in kinds else staging_ns
        if staging_ns is None:
            continue
        source = (
            f"benchmarks/attention_tiles.py on one {gpu_name}: median spans of the kernel alone, "
            f"{loop.case.heads} heads, {loop.case.tokens:,} tokens; Q-loop {loop.q_loop_ns / 1e3:.1f} us of "
            f"{loop.kv_tiles} KV tiles"
        )
        lines = [
            "[[compute.attention]]",
            'dtype = "bf16"',
            f"block_m = {loop.config.block_m}",
            f"block_n = {block_n}",
            f"head_dim = {loop.case.head_dim}",
            f"kv_tile_ns = {sigma_ns(kinds):.0f}.0",
            "fixed_ns = 0.0",
            f"staging_ns = {staging_ns:.0f}.0",
        ]
        if loop is not kinds["alone"]:
            source += f" ({kinds['alone'].q_loop_ns / 1e3:.1f} without a storer warp)"
        split_staging_ns = kinds["split"].issue_ns if "split" in kinds else split_staging_ns
        if split_staging_ns is not None:
            times = (sigma_ns(kinds), max(0.0, median(exchanges_ns)), split_staging_ns)
            names = ("kv_tile_ns", "exchange_ns", "staging_ns")
            pairs = (f"{name} = {ns:.0f}.0" for name, ns in zip(names, times, strict=True))
            lines.append(f"split = {{ {', '.join(pairs)} }}")
        if "split" in kinds:
            source += f", split {kinds['split'].q_loop_ns / 1e3:.1f} us of {kinds['split'].kv_tiles}"
        yield "\n".join([*lines, f'source = "{source}"', ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", default="128,64")
    parser.add_argument("--block-m", default=",".join(map(str, BUILT_BLOCK_M["sm_90"])))
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=3, help="of the rank")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.toml")
    options = parser.parse_args()
    groups = [
        (head_dim, list(variants(block_m, head_dim)))
        for block_m, head_dim in itertools.product(numbers(options.block_m), numbers(options.head_dims))
    ]
    with ProcessPoolExecutor() as pool:
        compilations = [
            pool.submit(compile_variant, config, head_dim)
            for head_dim, group in groups
            for _, config in group
        ]
    for compilation in compilations:
        compilation.result()
    tensors = {dim: Tensors(options.tokens, options.heads, dim) for dim in numbers(options.head_dims)}
    timed = [[tensors[dim].timed(kind, config) for kind, config in group] for dim, group in groups]
    in_turn = list(itertools.chain.from_iterable(timed))
    for number in range(options.rounds):
        first = number * len(in_turn) // options.rounds
        for one in in_turn[first:] + in_turn[:first]:
            one.visit()
    found = list(itertools.chain.from_iterable(map(entries, timed)))
    print("\n".join(found))
    if options.output is not None:
        options.output.write_text("\n".join(found))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
