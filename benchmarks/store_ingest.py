"""Speed and size of the store: spans/s through ``RunWriter.add_launch``, and bytes/span of the file.

    python benchmarks/store_ingest.py [--spans 4000000]

Spans are like a calibration's on 132 SMs: periodic bursts with uneven service between SMs and
jitter around it, then isolated bursts on common deadlines. The figure includes encoding, hashing,
one committed transaction a launch, and the rows of the launches; the file counts in full.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.launches.bursts import BurstPoint, BurstRun
from xstage_tune.launches.device import DeviceDescription, LaunchInfo, Outcome, Verification
from xstage_tune.store.facade import Store

LANES = 132
TICKS_PER_NS = 1.98
PERIOD_TICKS = 38_600  # of 132 producers of 8 KB at 55 GB/s
DEVICE = DeviceDescription(
    kind="simulator",
    name="synthetic",
    uuid="",
    architecture="",
    sm_count=LANES,
    l2_bytes=0,
    memory_bytes=0,
    max_sm_clock_mhz=1980,
    driver="",
    cuda="",
    nvrtc="",
    paths=("host",),
)


def periodic_spans(rng: np.random.Generator, bursts: int, gap_ticks: int) -> NDArray[np.void]:
    """``[LANES * bursts]``: a fast quarter of the SMs, log-normal service, a spin that varies a little."""
    share = np.where(np.arange(LANES) < 24, 1.38, 0.92)[:, None]
    service = (PERIOD_TICKS / share - gap_ticks) * rng.lognormal(0.0, 0.5, (LANES, bursts))
    duration = np.maximum(service, 1_000).astype(np.int64)
    spin = gap_ticks + rng.integers(0, 40, (LANES, bursts))
    first = rng.integers(20_000, 24_000, (LANES, 1))
    return _spans(first + np.cumsum(duration + spin, axis=1) - duration, duration)


def isolated_spans(rng: np.random.Generator, bursts: int) -> NDArray[np.void]:
    """``[LANES * bursts]``: bursts that all start on deadlines seen through a timer of 32 ns."""
    deadline = np.arange(1, bursts + 1) * 400_000
    begin = deadline + rng.integers(0, int(32 * TICKS_PER_NS), (LANES, bursts))
    duration = np.maximum(60_000 * rng.normal(1.0, 0.1, (LANES, bursts)), 1_000).astype(np.int64)
    return _spans(begin, duration)


def _spans(begin: NDArray[np.int64], duration: NDArray[np.int64]) -> NDArray[np.void]:
    lanes, bursts = begin.shape
    spans = np.zeros(begin.size, SPAN_DTYPE)
    spans["begin_ticks"], spans["duration_ticks"] = begin.ravel(), duration.ravel()
    spans["index"] = np.tile(np.arange(bursts), lanes)
    spans["lane"] = np.repeat(np.arange(lanes), bursts)
    spans["kind"] = SpanKind.ISSUE
    return spans


def lane_clocks(rng: np.random.Generator, spans: NDArray[np.void]) -> NDArray[np.void]:
    """Clock pairs of the lanes: a common timer of 32 ns, and a cycle counter of each SM's own."""
    lanes = np.zeros(LANES, LANE_DTYPE)
    length_ticks = int(spans["begin_ticks"].max()) + 100_000
    lanes["timer_begin_ns"] = 1_700_000_000_000_000_000 + 32 * rng.integers(0, 40, LANES)
    lanes["timer_end_ns"] = lanes["timer_begin_ns"] + np.uint64(length_ticks / TICKS_PER_NS)
    lanes["tick_begin"] = 10**12 + rng.integers(0, 10**9, LANES)
    lanes["tick_end"] = (
        lanes["tick_begin"] + np.uint64(length_ticks) + rng.integers(0, 64, LANES).astype("u8")
    )
    lanes["recorded"] = lanes["issued"] = len(spans) // LANES
    lanes["lane"], lanes["sm_id"] = np.arange(LANES), rng.permutation(LANES)
    return lanes


def make_runs(seed: int, bursts: int) -> Iterator[BurstRun]:
    """Different launches, made before the clock runs."""
    rng = np.random.default_rng(seed)
    for gap_ticks in (0, 4_000, 8_000, 16_000):
        yield _run("periodic", periodic_spans(rng, bursts, gap_ticks), rng)
    yield _run("isolated", isolated_spans(rng, 32), rng)


def _run(mode: str, spans: NDArray[np.void], rng: np.random.Generator) -> BurstRun:
    point = BurstPoint(mode, "host", "st.v4", LANES, 8192, 0, window_ns=5_000_000)  # type: ignore[arg-type]
    info = LaunchInfo("burst", "0" * 64, 40, 0, 65536, 32, 6_000_000, "2026-01-01T00:00:00.000000+00:00")
    return Outcome(point, None, info, Verification(1 << 20, 0), SpanTable(spans, lane_clocks(rng, spans)))


def ingest(path: Path, runs: list[BurstRun], target_spans: int) -> tuple[int, int, float]:
    """Write launches until ``target_spans`` are in; returns launches, spans and seconds."""
    launches = spans = 0
    with Store.open(path) as store:
        begin = time.perf_counter()
        with store.begin_run(kind="benchmark", argv=[], device=DEVICE) as run:
            while spans < target_spans:
                burst = runs[launches % len(runs)]
                run.add_launch(launches, burst)
                launches, spans = launches + 1, spans + len(burst.table.spans)
        seconds = time.perf_counter() - begin
    return launches, spans, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=4_000_000)
    parser.add_argument("--bursts", type=int, default=250, help="per producer in a periodic launch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        runs = list(make_runs(options.seed, options.bursts))
        launches, spans, seconds = ingest(path, runs, options.spans)
        figures = {
            "launches": launches,
            "spans": spans,
            "spans_per_s": round(spans / seconds),
            "bytes_per_span": round(path.stat().st_size / spans, 3),
        }
    print(json.dumps(figures, sort_keys=True))


if __name__ == "__main__":
    main()
