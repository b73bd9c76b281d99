"""Simulated launches that are traced, imported and emulated again: the time of the second beside the first.

    python benchmarks/own_kernel/replay_spans.py

Each case is emulated by the simulator, its first launch exported as a Chrome trace, imported, and the bursts
of the trace emulated on the same platform: not told what tiles spend before their remote stores, and told it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from xstage_tune.base.progress import NoProgress
from xstage_tune.experiments.burst_replay import ReplayRequest, replay_bursts
from xstage_tune.experiments.emulation.cases import cases_of, skeleton_of
from xstage_tune.experiments.emulation.options import make_request
from xstage_tune.experiments.emulation.session import run_emulation
from xstage_tune.families.workload_files import load_workload
from xstage_tune.report.run_trace import traced_run
from xstage_tune.report.trace_file import write_trace
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.simulator.skeletons import local_stores_ns
from xstage_tune.spans.bursts import imported_bursts
from xstage_tune.spans.importing import import_spans
from xstage_tune.store.facade import Store

#: (workload, tokens, schedule, platform).
CASES = (
    ("fa-a2a/paper", 4096, "rotated", "h200-peer"),
    ("fa-a2a/paper", 8192, "sequential", "h200-host"),
    ("megamoe/mixtral-8x7b", 512, "interleaved", "h200-peer"),
    ("megamoe/mixtral-8x7b", 512, "wave", "h200-host"),
    ("megamoe/deepseek-v4-flash", 64, "wave", "h200-host"),
)
_MOST_SPANS = 1_000_000


def replayed(
    workload: str, tokens: int, schedule: str, platform: str, folder: Path, *, told: bool
) -> tuple[float, float]:
    """Makespan of the first launch of a case, and of its bursts emulated again, in ns.

    Args:
        folder: for the store and the trace.
        told: whether the replay is told what tiles spend before their remote stores.
    """
    layer = load_workload(workload, (f"tokens={tokens}",))
    with Store.open(folder / "store.db") as store:
        request = make_request(
            layer, "default", platform, None, store, print, schedules=(schedule,), repeats=1, seed=0
        )
        device = SimulatedDevice(request.platform)
        first = run_emulation(device, request, store, argv=(), progress=NoProgress())
        case = first.cases[0]
        run, trace = store.run(first.run_id), folder / "trace.json.gz"
        launches = traced_run(run, store.launches(run.id), 0)
        write_trace(trace, launches, most_spans=_MOST_SPANS, about={"run": run.id}, force=True)
        imported = import_spans([trace], store, ())
        skeleton = skeleton_of(cases_of(request)[0], request)
        streams, remote = skeleton.streams, skeleton.streams.remote_bytes > 0
        before_ns = streams.staging_ns + local_stores_ns(
            request.platform, skeleton.flavour, skeleton.local_bytes, streams.remote_bytes
        )
        names = [name for name in imported.timelines[0].about.names if name.endswith("issue, remote stores")]
        run_id, bursts = imported_bursts(store, imported.run_id, names)
        again = ReplayRequest(
            run=run_id,
            names=tuple(names),
            burst_bytes=int(streams.remote_bytes.max()),
            epilogue_ns=float(np.mean(before_ns[remote])) if told else 0.0,
            platform=request.platform,
            path=request.path,
            flavour=skeleton.flavour,
        )
        result = replay_bursts(device, again, store, bursts, argv=(), progress=NoProgress())
    return case.makespan_ns, result.replayed[0].makespan_ns


def main() -> None:
    print(f"{'case':52} {'first':>12} {'again':>9} {'told':>9}")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            first_ns, again_ns = replayed(*case, Path(folder), told=False)
        with tempfile.TemporaryDirectory() as folder:
            _, told_ns = replayed(*case, Path(folder), told=True)
        name = " ".join(map(str, case))
        print(f"{name:52} {first_ns / 1e3:9.1f} us {again_ns / first_ns:9.4f} {told_ns / first_ns:9.4f}")


if __name__ == "__main__":
    main()
