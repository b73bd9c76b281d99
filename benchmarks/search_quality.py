"""How soon searches find the best config of whole spaces that were measured on an H200.

    python -m benchmarks.search_quality run -o FILE [--seeds N] [--jobs N] [--searches NAME ...]
    python -m benchmarks.search_quality show FILE ...

Every search runs with every seed on every space of ``profiles/spaces``. A seed is also what the timing shows:
each config's recorded samples are drawn anew, with replacement, and a search sees the draw. All searches of a
seed see the same one, and are judged by the whole recording. So two runs of the guided search, whose order
follows from closed forms, differ as two runs on a GPU do.

- ``guided``: ``xstage-tune search`` as it is by default, but for the tolerance, which is 0.
- ``TPE``, ``GP``, ``random``: optuna's samplers on the same axes. What cannot run is told PRUNED and, like
  what was proposed before, not counted. GP needs torch.
- ``kt ...``: Kernel Tuner's own strategies, in its simulation mode, on ``xstage-tune export --format
  kernel-tuner`` of the whole space.

An evaluation is of a config that was not evaluated before. Its time is what the GPU ran for it when the space
was recorded. A run that does not get near the optimum counts as one more than the budget.

The score is that of the field, the mean over the evaluations of the budget of how far the best config found
is on the way from what random search expects then to the optimum: 1 knows the optimum at once, 0 is random.
Its budget is what random search needs for 95% of the way from the median of the space to the optimum.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from xstage_tune.base.progress import NoProgress
from xstage_tune.devices.recorded_kernels import ReplayedKernels
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys
from xstage_tune.families.kernel_launch import KERNELS, KernelLaunch, KernelRun
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.device import LaunchInfo, Outcome
from xstage_tune.launches.recording import Recording, recording_file
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.sampling import suggest
from xstage_tune.search.space import Space, build_space, params_of

PLATFORM, WORKLOAD = "h200-host", "fa-a2a/paper"
#: Name of the space to tokens and heads of all 8 ranks.
SPACES = {"4096x3": (4096, 24), "8192x3": (8192, 24), "8192x4": (8192, 32), "16384x3": (16384, 24)}
BUDGET = 100
NEAR = (0.05, 0.01)
#: A sampler that goes on proposing what is infeasible or known is given up.
ASKS_PER_EVALUATION = 20
CUTOFF = 0.95
#: Kernel Tuner's strategies that need no other package; some end on their own.
KERNEL_TUNER = (
    "random_sample", "minimize", "basinhopping", "diff_evo", "genetic_algorithm", "greedy_mls",
    "ordered_greedy_mls", "greedy_ils", "dual_annealing", "mls", "pso", "simulated_annealing",
    "firefly_algorithm", "bayes_opt", "hybrid_vndx", "adaptive_tabu_greywolf", "nsga2",
)  # fmt: skip
Floats = NDArray[np.float64]


@dataclass
class Recorded:
    """A space on record.

    Args:
        times_ns: samples of each config, at the clocks of all of the recording.
        busy_s: ``[configs]`` what the GPU ran for each.
    """

    name: str
    workload: Workload
    platform: PlatformProfile
    space: Space
    times_ns: list[Floats]
    busy_s: Floats

    @cached_property
    def true(self) -> Floats:
        """``[configs]`` time over that of the optimum, by which a search is judged."""
        medians_ns = np.array([np.median(each) for each in self.times_ns])
        over: Floats = medians_ns / medians_ns.min()
        return over

    def seen(self, seed: int) -> list[Floats]:
        """What a search with this seed measures."""
        rng = np.random.default_rng([seed, 17])
        return [rng.choice(each, each.size) for each in self.times_ns]


@cache
def recorded(name: str) -> Recorded:
    """Read a space."""
    tokens, heads = SPACES[name]
    workload = load_workload(WORKLOAD, [f"tokens={tokens}", f"heads={heads}"])
    platform = load_platform(PLATFORM)
    space = build_space(workload, platform)
    file = recording_file(f"h200-host-fa-{name}", "search")
    with closing(ReplayedKernels(file)) as device:
        device.require_workload(workload)
        launches = [KernelLaunch(workload, config, platform.path) for config in space.configs]
        times_ns = [np.array(outcome.figures.latency_ns) for outcome in device.run(launches)]
    busy_s = np.zeros(len(space.configs))
    with closing(Recording(file, "search")) as recording:
        for launch in recording.manifest.launches:
            config = config_from_keys(launch.keys["config"], str(file))
            busy_s[space.index[config]] = (launch.figures or {})["busy_ns"] / NS_PER_S
    return Recorded(name, workload, platform, space, times_ns, busy_s)


@dataclass
class Drawn:
    """A space as one seed sees it, in the place of a GPU."""

    of: Recorded
    seen: list[Floats]
    asked: list[int]
    identity: str = "recorded space"
    kinds: tuple[str, ...] = (KERNELS.name,)

    def run(self, launches: Iterable[KernelLaunch]) -> Iterator[Outcome[KernelLaunch, KernelRun]]:
        """See :class:`~xstage_tune.launches.device.Device`."""
        for launch in launches:
            own = self._samples_ns(launch.config)
            against_ns = None if launch.against is None else self._samples_ns(launch.against)
            if not launch.exposed:  # not of the last comparison
                self.asked.append(self.of.space.index[launch.config])
            figures = KernelRun(own if against_ns is None else own[: len(against_ns)])
            if against_ns is not None:
                figures = replace(figures, against_ns=against_ns[: len(own)])
            yield Outcome(launch, figures, LaunchInfo("recorded", "", 0, 0, 0, 1, 0, ""))

    def _samples_ns(self, config: KernelConfig) -> tuple[float, ...]:
        return tuple(self.seen[self.of.space.index[config]].tolist())


@dataclass(frozen=True)
class Run:
    """Configs in the order in which a search evaluated them, and of the guided one what it cut."""

    asked: list[int]
    cut: list[int]


def guided(of: Recorded, seed: int) -> Run:
    """This tool."""
    request = SearchRequest(
        workload=of.workload, platform=of.platform, seed=seed, trials=BUDGET, tolerance=0.0
    )
    device = Drawn(of, of.seen(seed), [])
    result = run_search(request, of.space, device, NoJournal(), NoProgress())
    ranking = rank_configs(of.space.configs, of.workload, of.platform, "latency")
    seen = np.array([np.median(each) for each in device.seen])
    tried = list(dict.fromkeys(device.asked))
    holds = result.least_part_of_bound or 1.0
    out = np.flatnonzero(ranking.bound_ns * holds >= seen[tried].min())
    return Run(tried, sorted(set(out.tolist()) - set(tried)))


def with_optuna(sampler: Callable[[int], BaseSampler]) -> Callable[[Recorded, int], Run]:
    """A plain sampler."""

    def search(of: Recorded, seed: int) -> Run:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study, seen = optuna.create_study(sampler=sampler(seed)), of.seen(seed)
        asked: dict[int, None] = {}
        for _ in range(ASKS_PER_EVALUATION * BUDGET):
            if len(asked) == BUDGET:
                break
            trial = study.ask()
            index = of.space.index.get(of.space.family.config_of(suggest(trial, of.space)))
            if index is None:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                continue
            asked[index] = None
            study.tell(trial, float(np.median(seen[index])))
        return Run(list(asked), [])

    return search


@cache
def exported(name: str) -> dict[str, Any]:
    """Kernel Tuner's cache of a whole space."""
    tokens, heads = SPACES[name]
    with tempfile.TemporaryDirectory() as folder:
        store, file = Path(folder, "store.db"), Path(folder, "cache.json")
        command = [sys.executable, "-m", "xstage_tune"]
        subprocess.run(
            [*command, "search", "--workload", WORKLOAD, "--set", f"tokens={tokens}",
             "--set", f"heads={heads}", "--platform", PLATFORM,
             "--device", f"replay:h200-host-fa-{name}", "--sampler", "exhaustive", "--store", str(store)],
            check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            [*command, "export", "--format", "kernel-tuner", "--store", str(store), "-o", str(file)],
            check=True, capture_output=True,
        )  # fmt: skip
        read: dict[str, Any] = json.loads(file.read_text())
    return read


def with_kernel_tuner(strategy: str) -> Callable[[Recorded, int], Run]:
    """One of its strategies; they draw from the global generators."""

    def search(of: Recorded, seed: int) -> Run:
        import kernel_tuner

        cache_file = exported(of.name)
        names = cache_file["tune_params_keys"]
        known = {_values(params_of(config), names): i for i, config in enumerate(of.space.configs)}
        entries = {key: known[_values(entry, names)] for key, entry in cache_file["cache"].items()}
        seen = of.seen(seed)
        drawn = {
            key: entry | {"time": float(np.median(seen[entries[key]])), "times": seen[entries[key]].tolist()}
            for key, entry in cache_file["cache"].items()
        }
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - what its strategies draw from
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "cache.json")
            file.write_text(json.dumps(cache_file | {"cache": drawn}))
            options = {"max_fevals": BUDGET}
            found, _ = kernel_tuner.tune_cache(
                str(file), strategy=strategy, strategy_options=options, verbose=False, quiet=True
            )
        return Run(list(dict.fromkeys(known[_values(entry, names)] for entry in found))[:BUDGET], [])

    return search


def _values(params: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(params.get(name, 0)) for name in names)


SEARCHES: dict[str, Callable[[Recorded, int], Run]] = {
    "guided": guided,
    "TPE": with_optuna(lambda seed: TPESampler(seed=seed)),
    "GP": with_optuna(lambda seed: GPSampler(seed=seed)),
    "random": with_optuna(lambda seed: RandomSampler(seed=seed)),
} | {f"kt {strategy}": with_kernel_tuner(strategy) for strategy in KERNEL_TUNER}


def run_one(job: tuple[str, str, int]) -> dict[str, Any]:
    """One search with one seed on one space.

    Returns:
        ``steps``: where it found a better config, the evaluations until then, the GPU's seconds for them,
        and the config's time over that of the optimum. ``cut``: configs that bounds left out, ``cut_near``
        those of them within 1% of the optimum.
    """
    space, search, seed = job
    warnings.simplefilter("ignore")
    of = recorded(space)
    with redirect_stdout(StringIO()):  # Kernel Tuner's own
        run = SEARCHES[search](of, seed)
    spent_s, best, steps = np.cumsum(of.busy_s[run.asked]), np.inf, []
    for count, index in enumerate(run.asked, start=1):
        if of.true[index] < best:
            best = of.true[index]
            steps.append([count, round(spent_s[count - 1], 3), round(best, 5)])
    near = sum(of.true[index] <= 1 + NEAR[-1] for index in run.cut)
    return {
        "space": space, "search": search, "seed": seed, "evaluations": len(run.asked),
        "seconds": round(float(spent_s[-1]), 3), "steps": steps, "cut": len(run.cut), "cut_near": int(near),
    }  # fmt: skip


def needed(run: dict[str, Any], near: float) -> tuple[float, float]:
    """Evaluations until one was near the optimum, and the GPU's seconds for them."""
    reached = (step for step in run["steps"] if step[2] <= 1 + near)
    count, spent_s, _ = next(reached, (BUDGET + 1, run["seconds"], 0.0))
    return count, spent_s


def expected_of_random(of: Recorded) -> Floats:
    """``[configs]`` mean of the best of 1, 2, ... configs drawn without replacement."""
    ordered = np.sort(of.true)
    size = ordered.size
    best = np.empty(size)
    for drawn in range(1, size + 1):
        # Of n drawn the k-th of all is the best with probability C(size - k, n - 1) / C(size, n).
        chance = np.zeros(size)
        left = drawn / size
        for k in range(size - drawn + 1):
            chance[k] = left
            left *= (size - k - drawn) / (size - k - 1) if k + 1 < size else 0.0
        best[drawn - 1] = chance @ ordered
    return best


def score(of: Recorded, runs: Sequence[dict[str, Any]]) -> float:
    """Of a search, over its seeds; see the module."""
    baseline = expected_of_random(of)
    target = np.median(of.true) - CUTOFF * (np.median(of.true) - 1.0)
    budget = min(int(np.argmax(baseline <= target)) + 1, BUDGET)
    counts = np.arange(1, budget + 1)
    curves = []
    for run in runs:
        after, _, best = np.array(run["steps"]).T
        curves.append(best[np.searchsorted(after, counts, side="right") - 1])
    ahead = (baseline[:budget] - np.mean(curves, axis=0)) / (baseline[:budget] - 1.0)
    return float(ahead.mean())


def read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Runs of files, one a line."""
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def show(runs: Sequence[dict[str, Any]]) -> None:
    """Print the tables."""
    print("evaluations, and seconds of the GPU, until near the optimum: median / nine runs of ten")
    for name in SPACES:
        of = recorded(name)
        best = int((of.true <= 1 + NEAR[-1]).sum())
        print(f"\n{name}: {of.true.size} configs, {best} within 1% of the optimum")
        print(
            f"{'':24} {'seeds':>5} {'to 5%':>13} {'to 1%':>13} {'s to 5%':>13} {'s to 1%':>13} {'score':>6}"
        )
        for search in SEARCHES:
            found = [run for run in runs if (run["space"], run["search"]) == (name, search)]
            if not found:
                continue
            reached = [list(zip(*(needed(run, near) for run in found), strict=True)) for near in NEAR]
            counts = "".join(f" {_pair(each[0], BUDGET):>13}" for each in reached)
            spent = "".join(f" {_pair(each[1]):>13}" for each in reached)
            print(f"{search:24} {len(found):5d}{counts}{spent} {score(of, found):6.2f}")
            if search == "guided":
                cut = _pair([run["cut"] for run in found])
                lost = sum(run["cut_near"] > 0 for run in found)
                print(f"{'':6}cut by bounds: {cut} configs; one within 1% of the optimum in {lost} runs")


def _pair(values: Sequence[float], most: int | None = None) -> str:
    cells = np.median(values), np.quantile(values, 0.9, method="inverted_cdf")
    return " / ".join(f">{most}" if most is not None and cell > most else f"{cell:.3g}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("-o", "--output", type=Path, required=True)
    runner.add_argument("--seeds", type=int, default=30)
    runner.add_argument("--jobs", type=int, default=2)
    runner.add_argument("--spaces", nargs="*", choices=list(SPACES), default=list(SPACES))
    runner.add_argument("--searches", nargs="*", choices=list(SEARCHES), default=list(SEARCHES))
    commands.add_parser("show").add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "show":
        show(read(arguments.files))
        return
    searches = [one for one in arguments.searches if one != "GP" or importlib.util.find_spec("torch")]
    jobs = [
        (space, search, seed)
        for seed in range(arguments.seeds)
        for space in arguments.spaces
        for search in searches
    ]
    # A run a line, as they come: a campaign that is stopped has those that were over.
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.output.open("w") as output:
        for run in pool.map(run_one, jobs):
            output.write(json.dumps(run) + "\n")
            output.flush()
    show(read([arguments.output]))


if __name__ == "__main__":
    main()
