"""Tile times of the attention kernel on this GPU, as ``[[compute.attention]]`` entries of a platform profile.

    python benchmarks/attention_tiles.py [--head-dims 128,64] [--block-m 128,192] [--tokens 16384] [--heads 3]
                                         [--limit-s 60] [-o FILE.toml]

Of every tile that is built and fits, one after another: ``profile`` times the Q-loops of the kernel alone by
its own spans; sigma is the median Q-loop over its KV tiles. Staging is timed where a storer warp does the
storing, in a run of its own; a tile that leaves no room for that has the staging of the widest that does.
Entries are printed as they come. A first pass compiles all tiles at once, so that none is compiled while
another runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import tomli_w
from fused_attention import tool

from xstage_tune.configs.attention_budget import BUILT_BLOCK_M, BUILT_BLOCK_N
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import AttentionConfig, OutputStaging
from xstage_tune.devices.cuda.attention_variants import attention_variant
from xstage_tune.devices.cuda.compiler import compile_kernel
from xstage_tune.platforms.loader import load_platform
from xstage_tune.workloads.loader import load_workload

DEGREE = 8


def tile(block_m: int, block_n: int, output_staging: OutputStaging) -> AttentionConfig:
    return AttentionConfig(
        block_m=block_m,
        block_n=block_n,
        kv_stages=2,
        output_staging=output_staging,
        tile_order="rotated",
        store_flavour="st.v4",
    )


def tiles(block_m: int, head_dim: int, output_staging: OutputStaging) -> list[AttentionConfig]:
    """All that are built and fit; without a staging of their own, beside which wide ones do not, all."""
    layer = load_workload("fa-a2a/paper", [f"head_dim={head_dim}"])
    platform = load_platform("h200-host")  # of the architecture alone
    configs = (tile(block_m, block_n, output_staging) for block_n in BUILT_BLOCK_N["sm_90"])
    return [config for config in configs if not check_config(config, layer, platform).violations]


def compile_tile(config: AttentionConfig, head_dim: int) -> None:
    """Into the cache, where ``profile`` finds it."""
    for record_spans in (False, True):
        variant = attention_variant(config, head_dim, record_spans=record_spans)
        compile_kernel(variant.source, "sm_90a", variant.defines, variant.names)


def profiled(config: AttentionConfig, head_dim: int, options: argparse.Namespace) -> dict[str, Any] | None:
    """What ``profile`` found; None where it fails, which is printed."""
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept) / "tile.toml"
        file.write_text(tomli_w.dumps(config.model_dump()))
        changes = (f"tokens={options.tokens}", f"heads={DEGREE * options.heads}", f"head_dim={head_dim}")
        arguments = [
            "--workload", "fa-a2a/paper",
            *itertools.chain.from_iterable(("--set", change) for change in changes),
            "--config", str(file), "--device", "cuda", "--path", "host", "--platform", "h200-host",
            "--repeats", "2", "--store", str(Path(kept) / "runs.db"), "--format", "json",
        ]  # fmt: skip
        said = tool("profile", *arguments, limit_s=options.limit_s, name=f"# {config.label}")
    return None if said is None else json.loads(said)


def span_ns(found: dict[str, Any], kind: str) -> float:
    """Median of a span of the kernel alone."""
    return float(found["points"][0]["spans"]["attention"][kind]["p50_ns"])


def entries(block_m: int, head_dim: int, options: argparse.Namespace) -> Iterator[str]:
    """Of the tiles of one height and head dim."""
    staged = {config.block_n: config for config in tiles(block_m, head_dim, "dedicated-x1")}
    staging_ns = None
    for config in tiles(block_m, head_dim, "alias-q"):
        if config.block_n in staged:
            staging = profiled(staged[config.block_n], head_dim, options)
            staging_ns = span_ns(staging, "issue") if staging else staging_ns
        found = profiled(config, head_dim, options)
        if found is None or staging_ns is None:
            continue
        q_loop_ns = span_ns(found, "q_loop")
        kv_tiles = -(-options.tokens // config.block_n)
        yield f"""[[compute.attention]]
dtype = "bf16"
block_m = {block_m}
block_n = {config.block_n}
head_dim = {head_dim}
kv_tile_ns = {q_loop_ns / kv_tiles:.0f}.0
fixed_ns = 0.0
staging_ns = {staging_ns:.0f}.0
source = "benchmarks/attention_tiles.py on one {found["device_name"]}: Q-loops of the kernel alone, \
{options.heads} heads, {options.tokens:,} tokens, {q_loop_ns / 1e3:.1f} us of {kv_tiles} KV tiles (median \
span), and their staging"
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", default="128,64")
    parser.add_argument("--block-m", default=",".join(map(str, BUILT_BLOCK_M["sm_90"])))
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=3, help="of the rank")
    parser.add_argument("--limit-s", type=float, default=60.0, help="of one profile run")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.toml")
    options = parser.parse_args()
    kinds = list(itertools.product(numbers(options.block_m), numbers(options.head_dims)))
    with ProcessPoolExecutor() as pool:
        compilations = [
            pool.submit(compile_tile, config, head_dim)
            for block_m, head_dim in kinds
            for staging in ("alias-q", "dedicated-x1")
            for config in tiles(block_m, head_dim, staging)
        ]
    for compilation in compilations:
        compilation.result()
    lines: list[str] = []
    for entry in itertools.chain.from_iterable(entries(*kind, options) for kind in kinds):
        print(entry, flush=True)
        lines.append(entry)
        if options.output is not None:
            options.output.write_text("\n".join(lines))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
