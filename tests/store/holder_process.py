"""A process that holds a study: ``python -m tests.store.holder_process LOCATION [STUDY]``.

It begins a study, or takes the one named, and prints the study's id; then it waits for its standard input to
be closed, and ends the study as finished. If it is refused, it prints why, and its exit code is the error's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from xstage_tune.base.errors import StoreError
from xstage_tune.store.facade import Store

ROOT = Path(__file__).parents[2]


def start_holder(location: str, *study: str) -> subprocess.Popen[str]:
    """Start the process from a test."""
    command = [sys.executable, "-m", __name__, location, *study]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def add_study(store: Store, workload: str = "megamoe/qwen3.5-397b") -> str:
    """Begin a study, held by this process; its id."""
    return store.studies.add(
        workload=workload,
        workload_sha256="ab",
        platform="paper-nvlink5",
        platform_sha256="cd",
        space={"block_m": [128, 192]},
        device="simulator",
        objective="latency",
        sampler="tpe",
        seed=0,
    )


def main(location: str, study: str = "") -> None:
    with Store.open(location) as store:
        try:
            if study:
                store.studies.take(study)
            else:
                study = add_study(store)
        except StoreError as error:
            print(error.message, flush=True)
            sys.exit(error.exit_code)
        print(study, flush=True)
        sys.stdin.read()
        store.studies.end(study, "finished")


if __name__ == "__main__":
    main(*sys.argv[1:])
