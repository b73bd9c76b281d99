"""A process that writes one run: ``python -m tests.store.writer_process LOCATION SEED LAUNCHES [hold]``.

Prints the run's id once all launches are in; with ``hold`` it then waits, the run still open.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.h200 import H200
from tests.store.bursts import make_burst
from xstage_tune.store.facade import Store

ROOT = Path(__file__).parents[2]


def start_writer(location: str, seed: int, launches: int, *options: str) -> subprocess.Popen[str]:
    """Start the process from a test."""
    command = [sys.executable, "-m", __name__, location, str(seed), str(launches), *options]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def main(location: str, seed: str, launches: str, *options: str) -> None:
    with (
        Store.open(location) as store,
        store.begin_run(kind="calibrate", argv=[], device=H200, seed=int(seed)) as run,
    ):
        for sequence in range(int(launches)):
            run.add_launch(sequence, make_burst(int(seed) + sequence))
        print(run.id, flush=True)
        if "hold" in options:
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
