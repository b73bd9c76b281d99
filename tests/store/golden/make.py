"""Write the golden database of the current schema: ``python -m tests.store.golden.make``.

Run once for each new schema revision, and keep the file: later versions must still read it.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from tests.h200 import H200
from tests.store.bursts import make_burst
from tests.store.skeletons import skeleton_run
from xstage_tune.store.facade import Store
from xstage_tune.store.migrate import HEAD_REVISION

FOLDER = Path(__file__).parent
SEEDS = (11, 12)
FIT = {"drain_bytes_per_s": 52.6e9, "knee": float("inf")}
PARAMS = {"block_m": 128}
MEASURED = {"makespan_ns": 123.5, "issue_mean_ns": None}
LATENCY_NS = 742.5
TRIAL_MEASURED = {"run": {"latency_ns": [742.5, float("nan")]}}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with Store.open(path) as store:
            write_content(store)
        target = FOLDER / f"schema_{HEAD_REVISION}.db.gz"
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def write_content(store: Store) -> None:
    with store.begin_run(kind="emulate", argv=["emulate"], device=H200) as run:
        run.add_launch(0, skeleton_run())
    with store.begin_run(kind="calibrate", argv=["calibrate"], device=H200, seed=1) as run:
        for sequence, seed in enumerate(SEEDS):
            run.add_launch(sequence, make_burst(seed))
        run.add_fit("platform", FIT)
    study = store.studies.add(
        workload="megamoe/golden",
        workload_sha256="ab",
        platform="golden",
        platform_sha256="cd",
        space={"block_m": [128, 192]},
        device="simulator",
        objective="latency",
        sampler="tpe",
        seed=0,
    )
    store.studies.add_trial(
        study,
        number=0,
        state="complete",
        params=PARAMS,
        objective_ns=float("nan"),
        latency_ns=LATENCY_NS,
        fault="unstable",
        measured=TRIAL_MEASURED,
        run_id=run.id,
    )
    store.studies.add_export(study, format="json", path="best.json", sha256="ef")
    store.studies.end(study, "finished")


if __name__ == "__main__":
    main()
