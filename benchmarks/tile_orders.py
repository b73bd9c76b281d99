"""E_res of the fused attention under every tile order: simulated, and beside it the closed form's.

    python benchmarks/tile_orders.py [--platform h200-host] [--tokens 8192,16384,32768,65536] [--heads 3,4,6]
                                     [--output-staging dedicated-x1]

Of 128x144 tiles, at degree 8, this rank's own rows local. With a dedicated staging stores are paced, else
they leave at once; the last column is of tiles that two CTAs share, under the last order. No GPU is used.
"""

from __future__ import annotations

import argparse
from typing import get_args

from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.config import AttentionConfig, OutputStaging, TileOrder
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile

DEGREE = 8
ORDERS: tuple[TileOrder, ...] = get_args(TileOrder)


def columns(staging: OutputStaging) -> dict[str, AttentionConfig]:
    """Configs by the titles of their columns."""
    by_order = {
        order: AttentionConfig(
            block_m=128,
            block_n=144,
            kv_stages=2,
            output_staging=staging,
            tile_order=order,
            store_flavour="st.v4",
        )
        for order in ORDERS
    }
    last = by_order[ORDERS[-1]]
    if not last.hands_stores_over:
        return dict(by_order)
    return by_order | {f"{ORDERS[-1]}, split": last.model_copy(update={"kv_splits": 2})}


def cell(platform: PlatformProfile, tokens: int, heads: int, config: AttentionConfig) -> str:
    """``simulated / closed form`` in us."""
    changes = [f"tokens={tokens}", f"heads={DEGREE * heads}", f"remote_fraction={(DEGREE - 1) / DEGREE}"]
    workload = load_workload("fa-a2a/paper", changes)
    assert isinstance(workload, AttentionWorkload)
    found = predict(
        ProfileRequest(workload=workload, platform=platform, config=config, path=platform.path), None
    )
    assert found is not None
    return f"{found.simulated.residual_ns / 1e3:.1f} / {found.closed.residual_ns / 1e3:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--platform", default="h200-host")
    parser.add_argument("--tokens", default="8192,16384,32768,65536")
    parser.add_argument("--heads", default="3,4,6", help="of a rank")
    parser.add_argument("--output-staging", choices=get_args(OutputStaging), default="dedicated-x1")
    options = parser.parse_args()
    platform = load_platform(options.platform)
    print(f"E_res on {platform.name}, {options.output_staging}, us: simulated / closed form")
    configs = columns(options.output_staging)
    print(f"{'tokens':>7} {'heads':>5}" + "".join(f"{title:>17}" for title in configs))
    for heads in map(int, options.heads.split(",")):
        for tokens in map(int, options.tokens.split(",")):
            cells = (cell(platform, tokens, heads, config) for config in configs.values())
            print(f"{tokens:>7} {heads:>5}" + "".join(f"{text:>17}" for text in cells))


if __name__ == "__main__":
    main()
