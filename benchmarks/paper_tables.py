"""Tables 2 and 3 of arXiv 2607.23264 simulated beside published, with the error of each cell.

    python benchmarks/paper_tables.py [table2|table3 ...]

``table2``: three predicted columns, simulated from what of the table is an input: the published mainloop
times, and the interleaved span, of which the epilogue's fixed cost is taken, so that it has no column
(``benchmarks.simulator.table2`` says what is assumed). Apart from them, T_L2 and T_L1 by the compute model,
which is not given the published ones.
``table3``: FlashAttention-4's rows on the paper's platform. Serial is the attention and then all its bytes at
R, a strong baseline: the published serial All-to-All moves 73 to 133 GB/s. FlashAttention-3 cannot run on a
148-SM Blackwell part, so its rows have no simulated side.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.simulator import TABLE_2, table2
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.binding import default_config
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.paper import PAPER_MOE_MODELS
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.fused_kernels import SimulatedKernels

PLATFORM = load_platform("paper-nvlink5")

#: Measured interleaved stall of Table 2, us.
INTERLEAVED_STALL = {
    "DiT-MoE": 0.04,
    "Qwen3.5": 0.04,
    "Hy3": 0.05,
    "MiMo-V2.5": 0.05,
    "GLM-5.2": 0.04,
    "DSv4-Flash": 0.05,
    "DSv4-Pro": 0.04,
}

#: Tokens to (attention only, serial, fused), us.
TABLE_3: dict[str, dict[int, tuple[float, float, float]]] = {
    "FA3": {
        8192: (195.2, 295.6, 207.0),
        16_384: (785.5, 968.3, 795.5),
        32_768: (3236.7, 3579.6, 3241.5),
        49_152: (7275.6, 7767.9, 7285.7),
        65_536: (13_249.4, 13_936.6, 13_218.3),
    },
    "FA4": {
        8192: (85.4, 140.9, 99.4),
        16_384: (346.5, 462.4, 356.6),
        32_768: (1439.4, 1660.9, 1429.2),
        49_152: (3281.4, 3661.7, 3282.1),
        65_536: (5340.7, 5813.0, 5348.9),
    },
}


def cell(simulated: float, published: float) -> str:
    """``9.51/9.93 (-4%)``; a difference instead of a ratio where nothing is published to divide by."""
    if published < 0.1:
        return f"{simulated:.2f}/{published:.2f} ({simulated - published:+.2f})"
    return f"{simulated:.2f}/{published:.2f} ({100 * (simulated / published - 1):+.0f}%)"


def print_table2() -> None:
    headings = ("wave span", "stall wave", "stall int.", "T_L2 by model", "T_L1 by model")
    print("Table 2, us, predicted/published (error); inputs: published T_L2, T_L1, interleaved span")
    print(f"{'model':12}" + "".join(f"{heading:>22}" for heading in headings))
    for model, published in TABLE_2.items():
        ours = table2(model)
        linear2_us, linear1_us = modelled_mainloops_us(model)
        cells = (
            cell(ours.wave_span, published.wave_span),
            cell(ours.wave_stall, published.wave_stall),
            cell(ours.interleaved_stall, INTERLEAVED_STALL[model]),
            cell(linear2_us, published.l2),
            cell(linear1_us, published.l1),
        )
        print(f"{model:12}" + "".join(f"{text:>22}" for text in cells))


def modelled_mainloops_us(model: str) -> tuple[float, float]:
    """T_L2 and T_L1 of a full 192-token tile by the compute model, weights in L2."""
    workload = load_workload(PAPER_MOE_MODELS[model])
    assert isinstance(workload, MoeWorkload)
    config = default_config(workload, PLATFORM)
    assert isinstance(config, MegaMoeConfig)
    times = moe_tile_times(config, workload, PLATFORM)
    tokens = np.array([config.block_m])
    linear2_ns, linear1_ns = (
        times.mainloop_ns(tokens, depth)[0] for depth in (workload.intermediate, workload.hidden)
    )
    return linear2_ns / 1e3, linear1_ns / 1e3


def simulated_attention_us(tokens: int) -> tuple[float, float, float]:
    """Attention only, serial and fused, with the default config."""
    fused = load_workload("fa-a2a/paper", (f"tokens={tokens}",))
    assert isinstance(fused, AttentionWorkload)
    alone = fused.model_copy(update={"remote_fraction": 0.0})
    device, config = SimulatedKernels(PLATFORM), default_config(fused, PLATFORM)
    alone_us, fused_us = (
        device.run_kernel(workload, config, 5).median_ns("latency") / 1e3 for workload in (alone, fused)
    )
    all_bytes = fused.local_heads * tokens * fused.head_dim * 2
    return alone_us, alone_us + all_bytes / PLATFORM.drain.bytes_per_s * 1e6, fused_us


def print_table3() -> None:
    print("Table 3, us, predicted/published (error); input: the published time of a KV tile")
    ours = {tokens: simulated_attention_us(tokens) for tokens in TABLE_3["FA4"]}
    for column, name in enumerate(("only", "serial", "fused")):
        unsimulated = [f"-/{published[column]:.2f}" for published in TABLE_3["FA3"].values()]
        print(f"FA3 {name:8}" + "".join(f"{text:>26}" for text in unsimulated))
        cells = [cell(ours[m][column], published[column]) for m, published in TABLE_3["FA4"].items()]
        print(f"FA4 {name:8}" + "".join(f"{text:>26}" for text in cells))
    residuals = [
        f"{ours[m][2] - ours[m][0]:.2f}/{fused - only:.2f} us"
        for m, (only, _, fused) in TABLE_3["FA4"].items()
    ]
    print("FA4 residual" + "".join(f"{text:>26}" for text in residuals))


def main() -> None:
    parts = {"table2": print_table2, "table3": print_table3}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="what to print; all by default")
    for part in parser.parse_args().parts or parts:
        parts[part]()


if __name__ == "__main__":
    main()
