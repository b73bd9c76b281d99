"""How far a tuned config carries: slower than the default for other tokens than its own, or not?

    python benchmarks/lookup_distance.py [--measure]

Every shipped layer is tuned on the simulator for several numbers of tokens. Each config then runs for more
and for fewer tokens, beside the default config of those tokens. A case is slower where each of the tuned
config's repeats is slower than all of the default's, and its median by more than 1%, within which a search
calls configs alike. The limit of a lookup (``MAX_TOKEN_RATIO`` in ``xstage_tune/export/token_distance.py``)
is the largest ratio up to which at most one case in twenty is slower. One layer in four takes no part in that
choice: it shows whether the limit holds for layers that it was not chosen on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from xstage_tune.base.errors import UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import run_kernel
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import list_workloads, load_workload
from xstage_tune.launches.device import Device
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import Outcome
from xstage_tune.search.space import build_space
from xstage_tune.simulator.device import SimulatedDevice

DATA = Path(__file__).parent / "data" / "lookup-distance.json"
PLATFORMS = {"moe": ("paper-nvlink5", "h200-peer"), "attention": ("h200-peer",)}
TUNED_TOKENS = {"moe": (8, 48, 400, 4096), "attention": (1024, 9000, 60_000)}
MOST_TOKENS = {"moe": 16_384, "attention": 131_072}
RATIOS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
TRIALS = 24
REPEATS = 3
#: One layer of so many, in the order of their names, is held out.
HELD_OUT_EVERY = 4
#: A median further above the default's is slower, if repeats agree.
MARGIN = 0.01
MOST_SLOWER = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """A config tuned for one number of tokens, run for another."""

    platform: str
    workload: str
    tuned_tokens: int
    asked_tokens: int
    ratio: float  # from RATIOS
    found_over_default: float
    slower: bool


def with_tokens(name: str, tokens: int) -> Workload:
    key = "tokens_per_rank" if name.startswith("megamoe/") else "tokens"
    return load_workload(name, [f"{key}={tokens}"])


def tuned_config(workload: Workload, device: Device, platform_name: str) -> KernelConfig:
    platform = load_platform(platform_name)
    request = SearchRequest(workload=workload, platform=platform, trials=TRIALS)
    space = build_space(workload, platform)
    return run_search(request, space, device, NoJournal(), NoProgress()).best.config


def cases_of(platform_name: str, name: str, tuned_tokens: int) -> list[Case]:
    """All cases of one search."""
    platform = load_platform(platform_name)
    device = SimulatedDevice(platform)
    tuned_for = with_tokens(name, tuned_tokens)
    try:
        config = tuned_config(tuned_for, device, platform_name)
    except UsageError as error:
        print(f"{name}, {tuned_tokens} tokens on {platform_name}: {error}", file=sys.stderr)
        return []
    cases = []
    for ratio in RATIOS:
        for asked in {round(tuned_tokens * ratio), round(tuned_tokens / ratio)} - {tuned_tokens, 0}:
            if asked > MOST_TOKENS[tuned_for.kind]:
                continue
            workload = with_tokens(name, asked)
            bound = bind(workload, platform)
            if not bound.check(config).feasible or bound.outgrown(config):
                continue  # a lookup gives the default then
            ran, base = (
                Outcome(one, run_kernel(device, workload, one, platform.path, REPEATS).samples_ns("latency"))
                for one in (config, bound.default())
            )
            over = ran.objective_ns / base.objective_ns
            slower = base.surely_better_than(ran) and over > 1 + MARGIN
            cases.append(Case(platform_name, name, tuned_tokens, asked, ratio, round(over, 4), slower))
    return cases


def split(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Those that the limit is chosen on, and those held out."""
    held_out = set(sorted({case.workload for case in cases})[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY])
    return (
        [case for case in cases if case.workload not in held_out],
        [case for case in cases if case.workload in held_out],
    )


def measured(processes: int) -> Iterator[Case]:
    searches = [
        (platform, name, tokens)
        for name in list_workloads()
        for kind in ("moe" if name.startswith("megamoe/") else "attention",)
        for platform in PLATFORMS[kind]
        for tokens in TUNED_TOKENS[kind]
    ]
    with ProcessPoolExecutor(processes) as pool:
        running = [pool.submit(cases_of, *search) for search in searches]
        for number, done in enumerate(as_completed(running), start=1):
            print(f"{number} of {len(searches)} searches", file=sys.stderr, flush=True)
            yield from done.result()


def table(title: str, cases: Sequence[Case]) -> str:
    """Share of slower cases at each ratio, and how much slower."""
    lines = [
        title,
        f"{'ratio':>7}{'cases':>7}{'slower':>9}{'up to it':>10}{'median':>9}{'p95':>7}{'worst':>7}",
    ]
    for ratio in RATIOS:
        at = [case for case in cases if case.ratio == ratio]
        within = [case for case in cases if case.ratio <= ratio]
        if not at:
            continue
        over = np.array([case.found_over_default for case in at])
        lines.append(
            f"{ratio:>7g}{len(at):>7}{np.mean([case.slower for case in at]):>9.1%}"
            f"{np.mean([case.slower for case in within]):>10.1%}"
            f"{np.median(over):>9.3f}{np.quantile(over, 0.95):>7.2f}{over.max():>7.2f}"
        )
    return "\n".join(lines)


def chosen_ratio(cases: Sequence[Case]) -> float:
    """The largest ratio up to which, at each, at most MOST_SLOWER of the cases are slower; 1 for none."""
    largest = 1.0
    for ratio in RATIOS:
        at = [case.slower for case in cases if case.ratio == ratio]
        if at and np.mean(at) > MOST_SLOWER:
            break
        largest = ratio
    return largest


def read_cases(path: Path) -> list[Case]:
    kept = json.loads(path.read_text())
    return [Case(**dict(zip(kept["columns"], row, strict=True))) for row in kept["rows"]]


def write_cases(cases: Sequence[Case], path: Path) -> None:
    columns = [field.name for field in fields(Case)]
    rows = ",\n".join(json.dumps(astuple(case)) for case in sorted(cases, key=astuple))
    path.write_text(f'{{"columns": {json.dumps(columns)}, "rows": [\n{rows}\n]}}\n')


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="search and simulate anew, some 20 minutes")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.measure:
        write_cases(list(measured(options.processes)), DATA)
    chosen_on, held_out = split(read_cases(DATA))
    print(table("layers that the limit was chosen on", chosen_on))
    for kind in ("megamoe/", "fa-a2a/"):
        print(table(f"of them, {kind}", [case for case in chosen_on if case.workload.startswith(kind)]))
    print(table("layers held out", held_out))
    print(f"largest ratio: {chosen_ratio(chosen_on):g}")


if __name__ == "__main__":
    main()
