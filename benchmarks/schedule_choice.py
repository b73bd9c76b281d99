"""The closed-form choice of schedule against the simulator, which runs both schedules.

    python benchmarks/schedule_choice.py

The paper's seven models at three sizes, with balanced and skewed routing, on the paper's platform: the
default config's tiles under expert waves and interleaved. Regret is how much slower the chosen schedule is
than the better of the two. ``knee_over_lead`` is the time with the lead D_knee over that with the usual
lead.
"""

from __future__ import annotations

import json
from math import ceil

import numpy as np
from lookup import export_of

from xstage_tune.export.record import TunedConfig
from xstage_tune.export.schedule_choice import choose
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.paper import PAPER_MOE_MODELS, PAPER_TOKENS_PER_RANK
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.model.moe import lead_knee_rows
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.fused_kernels import SimulatedKernels

SIZES = (256, 1024, PAPER_TOKENS_PER_RANK)
ROUTINGS = {"balanced": (), "skewed": ("routing.kind=zipf", "routing.alpha=1.0")}


def compare(export: TunedConfig, device: SimulatedKernels) -> dict[str, object]:
    """Both schedules simulated, and the choice between them."""
    layer, config, model = export.workload, export.config, export.schedule_model
    assert isinstance(layer, MoeWorkload)
    assert isinstance(config, MegaMoeConfig)
    assert model is not None

    def time_ns(schedule: Schedule) -> float:
        variant = config.model_copy(update={"schedule": schedule})
        return device.run_kernel(layer, variant, 1).median_ns("latency")

    knee = ceil(lead_knee_rows(block_n=config.block_n, producers=model.sms, intermediate=layer.intermediate))
    wave_ns = time_ns(Schedule(kind="wave", experts_per_wave=model.experts_per_wave))
    interleaved_ns = time_ns(Schedule(kind="interleaved", lead_rows=model.lead_rows))
    knee_ns = time_ns(Schedule(kind="interleaved", lead_rows=knee))
    choice = choose(export, local_tokens_per_expert(layer, busiest_rank(layer)))
    chosen_ns = wave_ns if choice.schedule.kind == "wave" else interleaved_ns
    return {
        "chosen": choice.schedule.kind,
        "wave_over_interleaved": round(wave_ns / interleaved_ns, 3),
        "predicted_saving_us": round((choice.stall_saved_ns - choice.locality_cost_ns) / 1e3, 1),
        "simulated_saving_us": round((wave_ns - interleaved_ns) / 1e3, 1),
        "regret": round(chosen_ns / min(wave_ns, interleaved_ns) - 1, 4),
        "knee_over_lead": round(knee_ns / interleaved_ns, 3),
    }


def main() -> None:
    platform = load_platform("paper-nvlink5")
    device = SimulatedKernels(platform)
    rows: list[dict[str, object]] = []
    for name, profile in PAPER_MOE_MODELS.items():
        for tokens in SIZES:
            for routing, keys in ROUTINGS.items():
                layer = load_workload(profile, [f"tokens_per_rank={tokens}", *keys])
                case = {"model": name, "tokens_per_rank": tokens, "routing": routing}
                rows.append(case | compare(export_of(layer, platform), device))
    for row in rows:
        print(json.dumps(row))
    regret = np.array([row["regret"] for row in rows], np.float64)
    summary = {
        "cases": len(rows),
        "better_schedule_chosen": int((regret == 0).sum()),
        "regret_mean": round(float(regret.mean()), 4),
        "regret_max": round(float(regret.max()), 4),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
