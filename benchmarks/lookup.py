"""Time of a runtime lookup and of a choice of schedule, with the bundle loaded.

    python benchmarks/lookup.py [--exports 64] [--calls 2000]

The bundle holds one MoE layer for many numbers of tokens, and an attention. Each figure is over single calls:
an exact match, a nearest one, a default that was worked out before, and the choice of schedule for the tokens
of 32 local experts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import xstage_tune
from xstage_tune.base.json_output import to_json
from xstage_tune.devices.kernel_identity import kernel_sha256
from xstage_tune.export.default_terms import default_terms
from xstage_tune.export.record import PlatformIdentity, Provenance, TunedConfig, TunedObjective
from xstage_tune.families.binding import default_config
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.schedule_terms import schedule_model
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile

LAYER = "megamoe/deepseek-v4-flash"
ATTENTION = "fa-a2a/wan2.1-14b-720p"
LOOKUP_LIMIT_US = 50.0
CHOICE_LIMIT_US = 100.0


def export_of(workload: Workload, platform: PlatformProfile) -> TunedConfig:
    """The default config as if it had been tuned."""
    config = default_config(workload, platform)
    moe = isinstance(workload, MoeWorkload) and isinstance(config, MegaMoeConfig)
    return TunedConfig(
        config=config,
        objective=TunedObjective(
            quantity="latency",
            basis="predicted",
            device="none",
            ns=1.0,
            default_ns=1.0,
            bound_ns=1.0,
            stopped="not searched",
            is_default=True,
            ties=0,
            evaluations=1,
        ),
        workload=workload,
        platform=PlatformIdentity(
            name=platform.name,
            sha256="",
            gpu=platform.gpu.name,
            architecture=platform.gpu.architecture,
            path=platform.path,
            gpu_identity=platform.gpu.identity,
        ),
        schedule_model=schedule_model(workload, platform, config) if moe else None,
        default_terms=default_terms(platform),
        provenance=Provenance(
            study_id="benchmark",
            created_at="",
            tool_version=xstage_tune.__version__,
            sampler="",
            seed=0,
            workload_sha256="",
            kernel_sha256=kernel_sha256(workload, emulated=False),
        ),
    )


def time_calls(call: Callable[[], object], calls: int) -> dict[str, float]:
    """Median and 99th percentile of single calls, in us, after a tenth as many to warm up."""
    for _ in range(calls // 10):
        call()
    laps_us = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        laps_us.append((time.perf_counter_ns() - start) / 1e3)
    return {
        "median_us": round(statistics.median(laps_us), 2),
        "p99_us": round(float(np.quantile(laps_us, 0.99)), 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--exports", type=int, default=64, help="exports of the MoE layer")
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args(arguments)

    platform = load_platform("paper-nvlink5")
    sizes = [128 * (n + 1) for n in range(options.exports)]
    workloads = [load_workload(LAYER, [f"tokens_per_rank={n}"]) for n in sizes] + [load_workload(ATTENTION)]
    with tempfile.TemporaryDirectory() as name:
        for number, workload in enumerate(workloads):
            (Path(name) / f"{number}.json").write_text(to_json(export_of(workload, platform).keys()))
        start = time.perf_counter()
        bundle = xstage_tune.load_bundle(name)
        load_ms = (time.perf_counter() - start) * 1e3

    exact = workloads[options.exports // 2]
    nearest = load_workload(LAYER, ["tokens_per_rank=1000"])
    far = load_workload(LAYER, ["tokens_per_rank=1"])
    gpu = bundle.gpu
    tokens = np.random.default_rng(0).multinomial(49_152, np.full(32, 1 / 32))
    figures = {
        "exports": len(workloads),
        "load_ms": round(load_ms, 1),
        "lookup_exact": time_calls(lambda: xstage_tune.lookup(bundle, exact, gpu=gpu), options.calls),
        "lookup_nearest": time_calls(lambda: xstage_tune.lookup(bundle, nearest, gpu=gpu), options.calls),
        "lookup_default": time_calls(lambda: xstage_tune.lookup(bundle, far, gpu=gpu), options.calls),
        "choose_schedule": time_calls(
            lambda: xstage_tune.choose_schedule(bundle, tokens, gpu=gpu), options.calls
        ),
        "limits_us": {"lookup": LOOKUP_LIMIT_US, "choose_schedule": CHOICE_LIMIT_US},
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
