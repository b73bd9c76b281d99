"""The event simulator beside emulated launches on a GPU, over cases that span what schedules may do.

    python -m benchmarks.emulation_agreement skeleton [--device N] [--repeats 5]
    python -m benchmarks.emulation_agreement measure -o FILE.json [--device N] [--path host] [--repeats 3]
    python -m benchmarks.emulation_agreement compare FILE.json --platform NAME [--half develop|held-out]

``skeleton`` runs the schedule skeleton that an earlier program measured on an H200, and prints both.
``measure`` runs every case's expert-wave and interleaved skeleton in rotated order. ``compare`` simulates the
same launches from the platform profile alone. The cases come in two halves: one to look at while the
simulator is developed, one that is only for a last look.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.devices.opener import open_cuda
from xstage_tune.devices.spec import EMULATE
from xstage_tune.families.megamoe.order import ExpertWave, Interleaved, MoeGrid, Schedule, megamoe_order
from xstage_tune.families.megamoe.scheduling import MoeScheduling
from xstage_tune.families.megamoe.streams import (
    MoeStores,
    given_mainloop_ns,
    megamoe_streams,
    moe_store_bytes,
)
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.device import SimulatedDevice

SMS = 132
BLOCK_M = 128
_SEED = 20261129
_PER_HALF = 32
#: Tiles of one SM: enough waves for a steady state, few enough for a launch of some ms.
_TILES_PER_SM = 160
_SLOT_BUDGET_BYTES = 180 << 10

ScheduleName = Literal["wave", "interleaved"]


@dataclass(frozen=True, slots=True)
class Case:
    """One shape under both schedules.

    Args:
        l1_ns, l2_ns: mainloops.
        tile_bytes: stored by a full tile of either layer.
        l1_tiles, l2_tiles: N-tiles of a row.
        wave_tiles: Linear-2 tiles of one SM in one wave, on average.
        lead_rows: D of the interleaved schedule.
        slot_at_end: a tile needs its slot when its mainloop ends (registers), not when it begins.
    """

    number: int
    l1_ns: int
    l2_ns: int
    tile_bytes: int
    l1_tiles: int
    l2_tiles: int
    wave_tiles: int
    remote_fraction: float
    staging_slots: int
    lead_rows: int
    slot_at_end: bool
    dependencies: bool
    skewed: bool
    flavour: StoreFlavour

    @property
    def half(self) -> Literal["develop", "held-out"]:
        return "develop" if self.number % 2 == 0 else "held-out"

    def tokens_per_expert(self) -> tuple[int, ...]:
        """An expert a wave; skewed ones fall off like Zipf's law over the same total."""
        rows = max(1, round(self.wave_tiles * SMS / self.l2_tiles))
        waves = max(2, round(_TILES_PER_SM / (self.wave_tiles * (1 + self.l1_tiles / self.l2_tiles))))
        if not self.skewed:
            return (rows * BLOCK_M,) * waves
        weights = 1 / np.arange(1, waves + 1)
        tokens = np.rint(rows * waves * BLOCK_M * weights / weights.sum())
        return tuple(int(count) for count in np.random.default_rng(self.number).permutation(tokens))


def cases() -> tuple[Case, ...]:
    """All cases, the same every time; even numbers are for development."""
    rng = np.random.default_rng(_SEED)

    def pick(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    found = []
    for number in range(2 * _PER_HALF):
        tile_bytes = pick(16, 32, 48) << 10
        slots = int(rng.integers(1, 5))
        found.append(
            Case(
                number=number,
                l1_ns=int(pick(6_000, 10_000, 16_000, 25_000)),
                l2_ns=int(pick(4_000, 8_000, 12_700, 20_000)),
                tile_bytes=tile_bytes,
                l1_tiles=int(pick(32, 48, 64)),
                l2_tiles=int(pick(32, 56)),
                wave_tiles=int(pick(2, 4, 8, 16, 32)),
                remote_fraction=float(pick(0.0, 0.125, 0.25, 0.25, 0.375, 0.5, 0.75)),
                staging_slots=min(slots, _SLOT_BUDGET_BYTES // tile_bytes),
                lead_rows=int(pick(1, 2, 4, 8, 16, 32)),
                slot_at_end=bool(rng.integers(2)),
                dependencies=bool(rng.integers(2)),
                skewed=bool(rng.integers(2)),
                flavour=pick("st.v4", "st.v4", "tma"),
            )
        )
    return tuple(found)


def skeleton_of(case: Case, name: ScheduleName, path: StorePath) -> Skeleton:
    """The launch of a case under one of its schedules."""
    grid = MoeGrid(
        case.tokens_per_expert(),
        BLOCK_M,
        l1_tiles=case.l1_tiles,
        l2_tiles=case.l2_tiles,
        sms=SMS,
        cta_group=1,
    )
    schedule: Schedule = ExpertWave(1) if name == "wave" else Interleaved(case.lead_rows)
    order = megamoe_order(grid, schedule)
    bytes_per_token = case.tile_bytes / BLOCK_M
    stores = MoeStores(
        l1_bytes_per_token=bytes_per_token,
        l2_bytes_per_token=bytes_per_token,
        remote_fraction=case.remote_fraction,
        local_bytes_per_ns=np.inf,
    )
    mainloop_ns = given_mainloop_ns(order, l1_ns=case.l1_ns, l2_ns=case.l2_ns)
    streams = megamoe_streams(grid, order, mainloop_ns, stores, dependencies=case.dependencies)
    local, remote = moe_store_bytes(grid, order, stores)
    remote_bytes = 16 * np.rint(remote / 16)
    return Skeleton(
        label=f"{case.number} {name}",
        streams=replace(
            streams,
            remote_bytes=remote_bytes,
            slot_offset_ns=streams.mainloop_ns * case.slot_at_end,
        ),
        local_bytes=16 * np.rint((local + remote) / 16) - remote_bytes,
        staging_slots=case.staging_slots,
        flavour=case.flavour,
        path=path,
        scheduling=MoeScheduling(grid, schedule),
    )


def published_skeleton(schedule: Schedule, staging_slots: int, remote_fraction: float) -> Skeleton:
    """The skeleton that was measured on an H200: 12 waves of 16 + 16 tiles of 32 KiB on each of 132 SMs."""
    grid = MoeGrid((16 * BLOCK_M,) * 12, BLOCK_M, l1_tiles=SMS, l2_tiles=SMS, sms=SMS, cta_group=1)
    order = megamoe_order(grid, schedule)
    stores = MoeStores(256.0, 256.0, remote_fraction, local_bytes_per_ns=np.inf)
    mainloop_ns = given_mainloop_ns(order, l1_ns=25_000.0, l2_ns=12_700.0)
    local, _ = moe_store_bytes(grid, order, stores)
    return Skeleton(
        label=f"{schedule} S={staging_slots} f={remote_fraction}",
        streams=megamoe_streams(grid, order, mainloop_ns, stores, dependencies=False),
        local_bytes=local,
        staging_slots=staging_slots,
        flavour="st.v4",
        path="host",
        scheduling=MoeScheduling(grid, schedule),
    )


def print_published_skeleton(device_index: int, repeats: int) -> None:
    """Totals in us, measured now beside measured then; both schedules in rotated order."""
    from benchmarks.simulator import SKELETON_MEASURED

    device = open_cuda(EMULATE, str(device_index))
    schedules = (ExpertWave(1), Interleaved(1))
    try:
        print(f"{device.identity}, path host, medians of {repeats}")
        for slots, fraction in ((1, 0.25), (2, 0.25), (3, 0.25), (2, 0.0)):
            launches: dict[Schedule, list[float]] = {schedule: [] for schedule in schedules}
            for repeat in range(repeats + 1):
                for schedule in schedules[:: 1 if repeat % 2 else -1]:
                    (run,) = device.run([published_skeleton(schedule, slots, fraction)])
                    assert run.verification.mismatched_bytes == 0, run.launch.label
                    if repeat:  # the first round is not counted
                        launches[schedule].append(run.figures.makespan_ns / 1e3)
            wave, interleaved = (median(launches[schedule]) for schedule in schedules)
            then = SKELETON_MEASURED[slots]
            known = f" (then {then.wave:.0f}, {then.interleaved:.0f}, {then.ratio:.3f})" if fraction else ""
            print(f"S={slots} f={fraction}: {wave:.0f}, {interleaved:.0f}, {wave / interleaved:.3f}{known}")
    finally:
        device.close()


def measure(device_index: int, path: StorePath, repeats: int) -> dict[str, Any]:
    """Run all cases on a GPU; figures of each launch."""
    names: tuple[ScheduleName, ...] = ("wave", "interleaved")
    device = open_cuda(EMULATE, str(device_index))
    rows = []
    try:
        for case in cases():
            skeletons = {name: skeleton_of(case, name, path) for name in names}
            launches: dict[str, list[LaunchFigures]] = {name: [] for name in names}
            for repeat in range(repeats):
                for name in names if repeat % 2 == 0 else names[::-1]:
                    for run in device.run([skeletons[name]]):
                        assert run.verification.mismatched_bytes == 0, run.launch.label
                        launches[name].append(run.figures)
            rows.append({"case": asdict(case)} | {n: [asdict(f) for f in launches[n]] for n in names})
        return {"device": asdict(device.describe()), "identity": device.identity, "path": path, "rows": rows}
    finally:
        device.close()


@dataclass(frozen=True, slots=True)
class Compared:
    """One launch, simulated over emulated."""

    case: Case
    schedule: ScheduleName
    makespan_error: float
    emulated_issue_ns: float | None
    simulated_issue_ns: float | None


def compare(measured: dict[str, Any], platform: str, half: str | None) -> Iterator[Compared]:
    """Simulate every measured launch of a half, or of both."""
    device = SimulatedDevice(load_platform(platform))
    for row in measured["rows"]:
        case = Case(**row["case"])
        if half is not None and case.half != half:
            continue
        for name in ("wave", "interleaved"):
            (run,) = device.run([skeleton_of(case, name, measured["path"])])
            ours = run.figures
            emulated_ns = median(launch["makespan_ns"] for launch in row[name])
            issued = [launch["issue_mean_ns"] for launch in row[name]]
            yield Compared(
                case=case,
                schedule=name,
                makespan_error=ours.makespan_ns / emulated_ns - 1,
                emulated_issue_ns=None if None in issued else median(issued),
                simulated_issue_ns=ours.issue_mean_ns,
            )


def _print(rows: list[Compared], free_issue_ns: Any) -> None:
    errors = np.array([abs(row.makespan_error) for row in rows])
    wave = {row.case.number: row.makespan_error for row in rows if row.schedule == "wave"}
    ratios = [
        abs((1 + wave[row.case.number]) / (1 + row.makespan_error) - 1)
        for row in rows
        if row.schedule == "interleaved"
    ]
    waiting = [
        abs(row.simulated_issue_ns / row.emulated_issue_ns - 1)
        for row in rows
        if row.emulated_issue_ns and row.simulated_issue_ns
        if row.emulated_issue_ns > 2 * free_issue_ns(row.case)
    ]
    print(f"{len(rows)} launches of {len(wave)} cases")
    print(f"makespan        error median {np.median(errors):.2%}, p95 {np.quantile(errors, 0.95):.2%}")
    print(f"wave/interleaved ratio error median {np.median(ratios):.3f}, p95 {np.quantile(ratios, 0.95):.3f}")
    if waiting:
        inside = np.mean(np.array(waiting) <= 0.1)
        print(
            f"mean T_RS above 2 T0: {len(waiting)} launches, error median {np.median(waiting):.1%}, "
            f"within 10% in {inside:.0%}"
        )
    for row in sorted(rows, key=lambda row: -abs(row.makespan_error))[:12]:
        print(f"  {row.makespan_error:+.2%} {row.schedule:11} {row.case}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("-o", "--output", type=Path, required=True)
    measuring.add_argument("--device", type=int, default=0)
    measuring.add_argument("--path", default="host", choices=("host", "peer", "local"))
    measuring.add_argument("--repeats", type=int, default=3)
    published = commands.add_parser("skeleton")
    published.add_argument("--device", type=int, default=0)
    published.add_argument("--repeats", type=int, default=5)
    comparing = commands.add_parser("compare")
    comparing.add_argument("file", type=Path)
    comparing.add_argument("--platform", required=True)
    comparing.add_argument("--half", choices=("develop", "held-out"))
    given = parser.parse_args()
    if given.command == "skeleton":
        print_published_skeleton(given.device, given.repeats)
        return
    if given.command == "measure":
        given.output.write_text(json.dumps(measure(given.device, given.path, given.repeats)))
        return
    from xstage_tune.platforms.queries import issue_ns

    platform = load_platform(given.platform)

    def free_issue_ns(case: Case) -> float:
        return float(issue_ns(platform, case.flavour, SMS, np.array([float(case.tile_bytes)]))[0])

    _print(list(compare(json.loads(given.file.read_text()), given.platform, given.half)), free_issue_ns)


if __name__ == "__main__":
    main()
