"""``python -m tests.fuzz``: fuzz for some minutes, and tell what was tried and what was found.

Exit 0 where nothing was found, else 1. A finding is named by target, seed and number, by which
``--only TARGET --seed S --input N`` makes it again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.fuzz.harness import Tally, away_from_the_users_data, run_input
from tests.fuzz.powercuts import power_cuts, why_not
from tests.fuzz.targets import TARGETS

#: Command lines run whole commands, the others a loader.
_TURNS = {
    "options": 1,
    "recordings": 12,
    "bundles": 12,
    "spans": 12,
    "stores": 4,
    "kills": 1,
    "power_cuts": 1,
    "stops": 1,
    "platforms": 8,
    "workloads": 10,
    "configs": 10,
}


def main() -> int:
    """Run the fuzzers as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long")
    parser.add_argument("--inputs", type=int, help="at most so many")
    parser.add_argument("--only", choices=[target.__name__ for target in TARGETS], help="one target")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--input", type=int, help="this one alone, with all that it says")
    asked = parser.parse_args()
    targets = [target for target in TARGETS if asked.only in (None, target.__name__)]
    if power_cuts in targets and (reason := why_not()):
        targets.remove(power_cuts)
        print(f"left out: {reason}")
    tallies = {target.__name__: Tally() for target in targets}
    end, done = time.monotonic() + 60 * asked.minutes, 0
    with away_from_the_users_data():
        if asked.input is not None:
            for target in targets:
                run_input(target, asked.seed, asked.input, tallies[target.__name__])
        for number in itertools.count() if asked.input is None else ():
            for target in targets:
                for turn in range(_TURNS[target.__name__]):
                    run_input(target, asked.seed, number * 100 + turn, tallies[target.__name__])
                    done += 1
            if time.monotonic() > end or (asked.inputs is not None and done >= asked.inputs):
                break
    _tell(tallies, asked.seed)
    return int(any(tally.findings for tally in tallies.values()))


def _tell(tallies: dict[str, Tally], seed: int) -> None:
    for name, tally in tallies.items():
        print(
            f"{name:<11}{tally.inputs:>8,} inputs, {tally.refused:>7,} refused, "
            f"{len(tally.findings)} findings; slowest {tally.slowest_s:.2f} s (input {tally.slowest}), "
            f"most memory {tally.most_bytes / 1e6:.0f} MB (input {tally.most})"
        )
        for kind, count in tally.by_kind().items():
            number, text = next(one for one in tally.findings if one[1].splitlines()[0] == kind)
            print(f"  {count} times: {kind}: --only {name} --seed {seed} --input {number}")
            print("".join(f"    {line}\n" for line in text.splitlines()[-30:]), end="")
    inputs = sum(tally.inputs for tally in tallies.values())
    peak = max(tally.peak_bytes for tally in tallies.values())
    print(f"{inputs:,} inputs, peak {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
