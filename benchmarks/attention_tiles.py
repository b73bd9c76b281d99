"""Tile times of the attention kernel on this GPU, as ``[[compute.attention]]`` entries of a platform profile.

    python benchmarks/attention_tiles.py [--tokens 16384] [--heads 3] [--head-dims 128,64] [--limit-s 60]
                                         [-o FILE.toml]

Of every tile that is built and fits, one after another: ``profile`` times the Q-loops of the kernel alone,
and their staging, by its own spans; sigma is the median Q-loop over its KV tiles. Entries are printed as they
come. A first pass compiles all tiles at once, so that none is compiled while another runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tomli_w

from xstage_tune.configs.attention_budget import BUILT_BLOCK_M, BUILT_BLOCK_N
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import AttentionConfig
from xstage_tune.devices.cuda.attention_variants import attention_variant
from xstage_tune.devices.cuda.compiler import compile_kernel
from xstage_tune.platforms.loader import load_platform
from xstage_tune.workloads.loader import load_workload

DEGREE = 8


def tiles(head_dim: int) -> Iterator[AttentionConfig]:
    """One config of each tile that is built: two KV stages, no staging of its own, so that wide ones fit."""
    layer = load_workload("fa-a2a/paper", [f"head_dim={head_dim}"])
    platform = load_platform("h200-host")  # of the architecture alone
    for block_m, block_n in itertools.product(BUILT_BLOCK_M["sm_90"], BUILT_BLOCK_N["sm_90"]):
        config = AttentionConfig(
            block_m=block_m,
            block_n=block_n,
            kv_stages=2,
            output_staging="alias-q",
            tile_order="rotated",
            store_flavour="st.v4",
        )
        if not check_config(config, layer, platform).violations:
            yield config


def compile_tile(tile: tuple[AttentionConfig, int]) -> None:
    """Into the cache, where ``profile`` finds it."""
    for record_spans in (False, True):
        variant = attention_variant(*tile, record_spans=record_spans)
        compile_kernel(variant.source, "sm_90a", variant.defines, variant.names)


def measure(config: AttentionConfig, head_dim: int, options: argparse.Namespace) -> str | None:
    """The entry of a tile; None where its run fails, which is printed."""
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept) / "tile.toml"
        file.write_text(tomli_w.dumps(config.model_dump()))
        changes = (f"tokens={options.tokens}", f"heads={DEGREE * options.heads}", f"head_dim={head_dim}")
        command = [
            sys.executable, "-m", "xstage_tune", "profile", "--workload", "fa-a2a/paper",
            *itertools.chain.from_iterable(("--set", change) for change in changes),
            "--config", str(file), "--device", "cuda", "--path", "host", "--platform", "h200-host",
            "--repeats", "2", "--store", str(Path(kept) / "runs.db"), "--format", "json",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=options.limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"# {config.label}: not over after {options.limit_s:g} s", flush=True)
            return None
    if done.returncode:
        print(f"# {config.label}: {done.stderr.strip().splitlines()[-2:]}", flush=True)
        return None
    found = json.loads(done.stdout)
    spans = found["points"][0]["spans"]["attention"]
    q_loop_ns, staging_ns = spans["q_loop"]["p50_ns"], spans["issue"]["p50_ns"]
    kv_tiles = -(-options.tokens // config.block_n)
    return f"""[[compute.attention]]
dtype = "bf16"
block_m = {config.block_m}
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
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=3, help="of the rank")
    parser.add_argument("--head-dims", default="128,64")
    parser.add_argument("--limit-s", type=float, default=60.0, help="of one profile run")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.toml")
    options = parser.parse_args()
    shapes = [
        (config, head_dim)
        for head_dim in map(int, options.head_dims.split(","))
        for config in tiles(head_dim)
    ]
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_tile, shapes))
    entries: list[str] = []
    for config, head_dim in shapes:
        entry = measure(config, head_dim, options)
        if entry is None:
            continue
        print(entry, flush=True)
        entries.append(entry)
        if options.output is not None:
            options.output.write_text("\n".join(entries))


if __name__ == "__main__":
    main()
