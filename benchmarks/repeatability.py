"""How well calibrations repeat: runs the command several times and prints the spread of every parameter.

    python benchmarks/repeatability.py --runs 5 --device cuda [--budget quick] [--keep FOLDER]

Each run is a process of its own with its own seed, as a user would start it. The kernel cache is warm from
the second run on, so the first run's time is printed apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def calibrate(folder: Path, device: str, budget: str, seed: int) -> tuple[dict[str, Any], float]:
    """One calibration: its JSON result, and its wall time in seconds."""
    command = [
        *(sys.executable, "-m", "xstage_tune", "calibrate", "--device", device, "--budget", budget),
        *("--seed", str(seed), "--store", str(folder / "runs.db"), "--format", "json"),
        *("--out", str(folder / f"{seed}.toml"), "--record", str(folder / f"{seed}.xsrec"), "--force"),
    ]
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    elapsed_s = time.perf_counter() - started
    if not done.stdout:
        sys.exit(done.returncode)
    return json.loads(done.stdout), elapsed_s


def spread_pct(values: list[float]) -> float:
    """Largest deviation from the median, in percent of it."""
    median = float(np.median(values))
    return 100 * max(abs(value / median - 1) for value in values)


def worst(results: list[dict[str, Any]], table: str, value: str) -> str:
    """The largest spread among the points of a table that all runs have."""
    by_point: dict[tuple[Any, ...], list[float]] = {}
    for result in results:
        for row in result["platform"][table]:
            key = (row["flavour"], row["producers"], row.get("burst_bytes", 0))
            by_point.setdefault(key, []).append(row[value])
    spreads = {key: spread_pct(found) for key, found in by_point.items() if len(found) == len(results)}
    where = max(spreads, key=lambda key: spreads[key])
    median = float(np.median(list(spreads.values())))
    return f"worst {spreads[where]:.2f}% at {where}, median {median:.2f}% over {len(spreads)} points"


def shares(result: dict[str, Any]) -> np.ndarray:
    """Share of R of each SM by the run's own law, by SM id."""
    share = {
        sm: group["share"] / len(group["sm_ids"])
        for group in result["platform"]["arbitration"]["groups"]
        for sm in group["sm_ids"]
    }
    return np.array([share[sm] for sm in sorted(share)])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", default="full")
    parser.add_argument("--keep", type=Path, help="folder for stores, profiles and recordings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        outcomes = [calibrate(folder, options.device, options.budget, seed) for seed in range(options.runs)]
    results = [result for result, _ in outcomes]
    seconds = [elapsed_s for _, elapsed_s in outcomes]
    platforms = [result["platform"] for result in results]
    rates = [platform["drain"]["bytes_per_s"] for platform in platforms]
    copies = [platform["drain"]["copy_engine_bytes_per_s"] for platform in platforms]
    validations = [platform["validation"] for platform in platforms]

    def each(key: str) -> str:
        return ", ".join(f"{validation[key]:.2f}" for validation in validations)

    print(f"{options.runs} calibrations, budget {options.budget}, {platforms[0]['description']}")
    print(f"wall time        first {seconds[0]:.1f} s, then {', '.join(f'{s:.1f}' for s in seconds[1:])} s")
    print(f"R                {', '.join(f'{rate / 1e9:.3f}' for rate in rates)} GB/s")
    print(f"R repeats        within {spread_pct(rates):.2f}% of the median")
    ratios = ", ".join(f"{100 * rate / copy:.1f}" for rate, copy in zip(rates, copies, strict=True))
    print(f"R / copy engine  {ratios} %")
    print(f"T0 repeats       {worst(results, 'issue', 'ns')}")
    print(f"Q repeats        {worst(results, 'capacity', 'bytes')}")
    correlations = [platform["arbitration"]["repeat_correlation"] for platform in platforms]
    print(f"per-SM shares    correlation of repeats {', '.join(f'{c:.4f}' for c in correlations)}")
    if options.runs > 1 and all(len(platform["arbitration"]["groups"]) > 1 for platform in platforms):
        between = np.corrcoef([shares(result) for result in results])[np.triu_indices(options.runs, 1)]
        print(f"                 correlation of the laws of different runs at least {between.min():.4f}")
    print(f"held-out period  median {each('period_median_pct')} %; p95 {each('period_p95_pct')} %")
    print(f"held-out T_iss   median {each('issue_median_pct')} %; p95 {each('issue_p95_pct')} %")
    print(f"isolated T_iss   median {each('isolated_median_pct')} %; p95 {each('isolated_p95_pct')} %")
    for result in results:
        for finding in result["findings"]:
            print(f"{finding['severity']:8} {finding['message']}")


if __name__ == "__main__":
    main()
