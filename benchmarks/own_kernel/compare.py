"""The recorded spaces of the fused attention by their own family, and through the door of own kernels.

    python benchmarks/own_kernel/compare.py [--seeds N] [--trials N] [-o FILE.json]

Both search the same recorded times. The score is the number of distinct configs until one was within 1% of
the best that is on record; a search that does not get there counts as one more than its trials. Through the
door the space is ``space.toml``: a process measures, and the bursts of ``attention.py`` bound and rank it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from xstage_tune.base.progress import NoProgress
from xstage_tune.devices.process_kernels import ProcessKernels
from xstage_tune.devices.recorded_kernels import ReplayedKernels
from xstage_tune.families.attention_a2a.family import FAMILY
from xstage_tune.families.binding import family_of
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload, workload_from_keys
from xstage_tune.launches.device import Device
from xstage_tune.launches.recording import recording_file
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.driver import run_search
from xstage_tune.search.evaluation import Evaluation, evaluate
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.space import build_space

RECORDED = ("h200-host-fa-4096x3", "h200-host-fa-8192x3", "h200-host-fa-8192x4", "h200-host-fa-16384x3")
WITHIN = 0.01
SPACE = Path(__file__).with_name("space.toml")
Values = frozenset[tuple[str, Any]]


class Order(NoJournal):
    """Keeps the configs that were run, in their order."""

    def __init__(self) -> None:
        self.ran: list[KernelConfig] = []

    def write(self, config: KernelConfig, state: str, **values: Any) -> None:
        del values
        if state in ("complete", "failed"):
            self.ran.append(config)


def values_of(config: KernelConfig) -> Values:
    values = config.values if config.kind == "own" else FAMILY.params_of(config)  # type: ignore[attr-defined, arg-type]
    return frozenset({"kv_splits": 1, **values}.items())


def recorded_ns(device: Device, workload: Workload) -> dict[Values, float]:
    """Of every config on record that ran."""
    platform = load_platform("h200-host")
    found = {}
    for config in build_space(workload, platform).configs:
        ran = evaluate(device, KernelLaunch(workload, config, platform.path))
        if isinstance(ran, Evaluation):
            found[values_of(config)] = ran.run.median_ns("latency")
    return found


def score(
    workload: Workload, device: Device, seed: int, trials: int, known_ns: Mapping[Values, float]
) -> tuple[int, float]:
    """Configs until one is within 1% of the best, and how far the answer is above it."""
    platform = load_platform("h200-host")
    request = SearchRequest(workload=workload, platform=platform, seed=seed, trials=trials, tolerance=0.0)
    order, best_ns = Order(), min(known_ns.values())
    result = run_search(request, build_space(workload, platform), device, order, NoProgress())
    near = (known_ns.get(values_of(config), float("inf")) <= best_ns * (1 + WITHIN) for config in order.ran)
    until = next((count for count, found in enumerate(near, 1) if found), trials + 1)
    return until, known_ns[values_of(result.best.config)] / best_ns - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    rows = []
    print(f"{'space':<22} {'family':>7} {'door':>7} {'ratio':>6}   answer above the best: family, door")
    for name in RECORDED:
        row = compared(name, range(asked.seeds), asked.trials)
        print(
            f"{name:<22} {row['family']:>7.1f} {row['door']:>7.1f} {row['door'] / row['family']:>6.2f}   "
            f"{row['family_above']:.2%}, {row['door_above']:.2%}",
            flush=True,
        )
        rows.append(row)
    if asked.output:
        found = {"seeds": asked.seeds, "trials": asked.trials, "rows": rows}
        asked.output.write_text(json.dumps(found, indent=1) + "\n")


def compared(name: str, seeds: range, trials: int) -> dict[str, Any]:
    """Means over the seeds."""
    os.environ["XSTAGE_OWN_DEVICE"] = f"replay:{name}"
    replayed = ReplayedKernels(recording_file(name, "search"))
    recorded = workload_from_keys(dict(replayed._recording.manifest.request["workload"]), name)
    known_ns = recorded_ns(replayed, recorded)
    sizes = {key: getattr(recorded, key) for key in ("tokens", "heads")}
    own = load_workload(str(SPACE), (f"tokens={sizes['tokens']}", f"keys.heads={sizes['heads']}"))
    default = FAMILY.bind(recorded, load_platform("h200-host")).default()  # type: ignore[arg-type]
    own = own.model_copy(update={"default": {"kv_splits": 1, **FAMILY.params_of(default)}})

    def mean(workload: Workload, opened: Callable[[], Device]) -> tuple[float, float]:
        device = opened()
        try:
            scores = [score(workload, device, seed, trials, known_ns) for seed in seeds]
        finally:
            device.close()
        return fmean(until for until, _ in scores), fmean(above for _, above in scores)

    family, family_above = mean(recorded, lambda: ReplayedKernels(recording_file(name, "search")))
    process = family_of(own).process_of(own)
    assert process is not None
    door, door_above = mean(own, lambda: ProcessKernels(process))
    return {
        "space": name, "configs": len(known_ns), "family": family, "door": door,
        "family_above": family_above, "door_above": door_above,
    }  # fmt: skip


if __name__ == "__main__":
    main()
