"""How many evaluations a search needs on exhaustively simulated spaces, and how long 200 trials take.

    python benchmarks/search_efficiency.py [--seeds N] [--gp-seeds N] [--spaces NAME ...]

Every config of ten spaces is simulated once. Then each search runs on those times with every seed. Its score
is the number of distinct configs that it evaluated until one was within 1% of the optimum. The guided search
is that of ``xstage-tune search``: it ranks by closed forms and bounds, and the default and the heuristics
count. The plain samplers are optuna's on the same axes: infeasible proposals are told PRUNED and, like
repeated ones, not counted. A run that does not get there counts as one more than its cap. GP needs torch, and
is left out without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from xstage_tune.base.progress import NoProgress
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.family import Value
from xstage_tune.families.kernel_launch import KERNELS, KernelLaunch, KernelRun
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.device import LaunchInfo, Outcome
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.sampling import suggest
from xstage_tune.search.space import Space, build_space, default_axes
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.simulator.fused_kernels import SimulatedKernels

PLATFORM = "paper-nvlink5"
SKEW = ("routing.kind=zipf", "routing.alpha=1.0", "routing.seed=0")
#: Name of the space to its workload and overrides.
SPACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "V4-Flash": ("megamoe/deepseek-v4-flash", ()),
    "V4-Pro skewed": ("megamoe/deepseek-v4-pro", SKEW),
    "Hy3 skewed": ("megamoe/hy3-preview", SKEW),
    "GLM-5.2 w4a8": ("megamoe/glm-5.2", ("precision=w4a8", "tokens_per_rank=3488")),
    "Qwen3.5-397B skewed": ("megamoe/qwen3.5-397b-a17b", SKEW),
    "Qwen3.5-35B": ("megamoe/qwen3.5-35b-a3b", ()),
    "V3 short": ("megamoe/deepseek-v3", ("tokens_per_rank=1024",)),
    "Mixtral": ("megamoe/mixtral-8x7b", ("tokens_per_rank=2048",)),
    "attention paper": ("fa-a2a/paper", ()),
    "attention FLUX": ("fa-a2a/flux.1-1024px", ()),
}
#: What narrows the MegaMoE axes so that a space can be simulated whole.
NARROWED: dict[str, tuple[Value, ...]] = {
    "block_m": (64, 96, 128, 192),
    "block_n": (64, 128, 256),
    "pipeline_stages": (3, 6, 8),
    "staging_depth": (2, 3),
}
NEAR = 1.01
GUIDED_TRIALS = 80
PLAIN_CAP = 100
GP_CAP = 60
#: A sampler that goes on proposing what is infeasible or known is given up.
ASKS_PER_EVALUATION = 4


@dataclass
class Measured:
    """A space and the simulated time of each of its configs; a device that looks them up and counts."""

    workload: Workload
    space: Space
    latency_ns: Mapping[KernelConfig, float]
    asked: list[KernelConfig] = field(default_factory=list)
    identity: str = "simulated table"
    kinds: tuple[str, ...] = (KERNELS.name,)

    def run(self, launches: Iterable[KernelLaunch]) -> Iterator[Outcome[KernelLaunch, KernelRun]]:
        info = LaunchInfo("table", "", 0, 0, 0, 1, 0, "")
        for launch in launches:
            if launch.repeats == 1:
                self.asked.append(launch.config)
            samples = (self.latency_ns[launch.config],) * launch.repeats
            yield Outcome(launch, KernelRun(samples, samples), info)

    @property
    def goal_ns(self) -> float:
        return min(self.latency_ns.values()) * NEAR

    def needed(self, cap: int) -> int:
        """Evaluations until one reached the goal, ``cap + 1`` if none of ``cap`` did."""
        for count, config in enumerate(self.asked[:cap], start=1):
            if self.latency_ns[config] <= self.goal_ns:
                return count
        return cap + 1


def measure(name: str, platform: PlatformProfile) -> Measured:
    """Simulate every config of a space."""
    workload = load_workload(*SPACES[name])
    axes = default_axes(workload, platform)
    if isinstance(workload, MoeWorkload):
        kept = {key: tuple(v for v in axes[key] if v in values) for key, values in NARROWED.items()}
        axes = axes | kept | {"block_k": axes["block_k"][:1]}
    space = build_space(workload, platform, axes)
    device = SimulatedKernels(platform)
    times = {config: device.run_kernel(workload, config, 1).latency_ns[0] for config in space.configs}
    return Measured(workload, space, times)


def guided(measured: Measured, platform: PlatformProfile, seed: int) -> int:
    """Evaluations of the guided search."""
    measured.asked.clear()
    request = SearchRequest(
        workload=measured.workload, platform=platform, seed=seed, trials=GUIDED_TRIALS, tolerance=0.0
    )
    run_search(request, measured.space, measured, NoJournal(), NoProgress())
    return measured.needed(GUIDED_TRIALS)


def plain(measured: Measured, sampler: BaseSampler, cap: int) -> int:
    """Evaluations of a plain sampler."""
    study = optuna.create_study(sampler=sampler)
    seen: set[KernelConfig] = set()
    for _ in range(ASKS_PER_EVALUATION * cap):
        if len(seen) == cap:
            break
        trial = study.ask()
        config = measured.space.family.config_of(suggest(trial, measured.space))
        if config not in measured.space.index:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        seen.add(config)
        study.tell(trial, measured.latency_ns[config])
        if measured.latency_ns[config] <= measured.goal_ns:
            return len(seen)
    return cap + 1


def tpe(measured: Measured, _: PlatformProfile, seed: int) -> int:
    """Evaluations of plain TPE."""
    return plain(measured, TPESampler(seed=seed), PLAIN_CAP)


def random(measured: Measured, _: PlatformProfile, seed: int) -> int:
    """Evaluations of random search."""
    return plain(measured, RandomSampler(seed=seed), PLAIN_CAP)


def gp(measured: Measured, _: PlatformProfile, seed: int) -> int:
    """Evaluations of a Gaussian process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plain(measured, GPSampler(seed=seed), GP_CAP)


SEARCHES = {
    "guided": (guided, GUIDED_TRIALS),
    "TPE": (tpe, PLAIN_CAP),
    "random": (random, PLAIN_CAP),
    "GP": (gp, GP_CAP),
}


def summary(needed: Sequence[int], cap: int) -> str:
    """Median and nine in ten of the counts."""
    cells = [np.median(needed), np.quantile(needed, 0.9, method="inverted_cdf")]
    return " / ".join(f">{cap}" if cell > cap else f"{cell:g}" for cell in cells)


def time_200_trials(platform: PlatformProfile) -> None:
    """Print the seconds of a search of 200 trials over a whole space, everything included."""
    workload = load_workload("megamoe/hy3-preview")
    began = time.perf_counter()
    space = build_space(workload, platform)
    request = SearchRequest(workload=workload, platform=platform, trials=200, tolerance=0.0)
    result = run_search(request, space, SimulatedDevice(platform), NoJournal(), NoProgress())
    seconds = time.perf_counter() - began
    print(
        f"{result.evaluations} trials on megamoe/hy3-preview ({len(space.configs)} configs): {seconds:.1f} s"
    )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="runs of each search on each space")
    parser.add_argument("--gp-seeds", type=int, default=2, help="runs of GP: 0.2 to 0.4 s a proposal")
    parser.add_argument("--spaces", nargs="*", choices=list(SPACES), default=list(SPACES))
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    platform = load_platform(PLATFORM)
    seeds = dict.fromkeys(SEARCHES, arguments.seeds) | {"GP": arguments.gp_seeds}
    if importlib.util.find_spec("torch") is None:
        seeds["GP"] = 0
    searches = [search for search in SEARCHES if seeds[search]]
    print("evaluations until within 1% of the optimum: median / nine runs of ten")
    print(f"{'space':20} {'configs':>8} {'within 1%':>10}" + "".join(f"{s:>14}" for s in searches))
    needed: dict[str, list[int]] = {search: [] for search in searches}
    for name in arguments.spaces:
        measured = measure(name, platform)
        near = sum(ns <= measured.goal_ns for ns in measured.latency_ns.values())
        cells = []
        for search in searches:
            run, cap = SEARCHES[search]
            counts = [run(measured, platform, seed) for seed in range(seeds[search])]
            needed[search] += counts
            cells.append(summary(counts, cap))
        row = f"{name:20} {len(measured.space.configs):8d} {near:10d}"
        print(row + "".join(f"{cell:>14}" for cell in cells), flush=True)
    for search in searches:
        ratio = np.mean(needed[search]) / np.mean(needed["guided"])
        cap = SEARCHES[search][1]
        print(f"all, {search}: {summary(needed[search], cap)}; mean {ratio:.1f}x guided, capped at {cap}")
    time_200_trials(platform)


if __name__ == "__main__":
    main()
