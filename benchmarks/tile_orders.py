"""E_res of the fused attention under every tile order: simulated, and beside it the closed form's.

    python benchmarks/tile_orders.py [--platform h200-host] [--tokens 8192,16384,32768,65536] [--heads 4,6]
                                     [--output-staging dedicated-x1]

Of 128x160 tiles, at degree 8, this rank's own rows local. With a dedicated staging stores are paced, else
they leave at once. No GPU is used.
"""

from __future__ import annotations

import argparse
from typing import get_args

from xstage_tune.configs.schema import AttentionConfig, OutputStaging, TileOrder
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.profiling.prediction import predict
from xstage_tune.profiling.request import ProfileRequest
from xstage_tune.workloads.loader import load_workload
from xstage_tune.workloads.schema import AttentionWorkload

DEGREE = 8
ORDERS: tuple[TileOrder, ...] = get_args(TileOrder)


def cell(platform: PlatformProfile, tokens: int, heads: int, staging: OutputStaging, order: TileOrder) -> str:
    """``simulated / closed form`` in us."""
    changes = [f"tokens={tokens}", f"heads={DEGREE * heads}", f"remote_fraction={(DEGREE - 1) / DEGREE}"]
    workload = load_workload("fa-a2a/paper", changes)
    assert isinstance(workload, AttentionWorkload)
    config = AttentionConfig(
        block_m=128,
        block_n=160,
        kv_stages=2,
        output_staging=staging,
        tile_order=order,
        store_flavour="st.v4",
    )
    found = predict(ProfileRequest(workload, platform, config, platform.path), None)
    assert found is not None
    return f"{found.simulated.residual_ns / 1e3:.1f} / {found.closed.residual_ns / 1e3:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--platform", default="h200-host")
    parser.add_argument("--tokens", default="8192,16384,32768,65536")
    parser.add_argument("--heads", default="4,6", help="of a rank")
    parser.add_argument("--output-staging", choices=get_args(OutputStaging), default="dedicated-x1")
    options = parser.parse_args()
    platform = load_platform(options.platform)
    print(f"E_res on {platform.name}, {options.output_staging}, us: simulated / closed form")
    print(f"{'tokens':>7} {'heads':>5}" + "".join(f"{order:>15}" for order in ORDERS))
    for heads in map(int, options.heads.split(",")):
        for tokens in map(int, options.tokens.split(",")):
            cells = (cell(platform, tokens, heads, options.output_staging, order) for order in ORDERS)
            print(f"{tokens:>7} {heads:>5}" + "".join(f"{text:>15}" for text in cells))


if __name__ == "__main__":
    main()
