"""Whose stores wait behind whose: small launches on a GPU, and the same on the event simulator.

    python -m benchmarks.neighbour_waits measure -o FILE.json [--device N] [--platform h200-host]
    python -m benchmarks.neighbour_waits compare FILE.json [--platform h200-host]

Each launch is a skeleton, so that stores, roles and counters are those of a fused kernel:

``idle``            an SM of every port stores 16 KB to the GPU's own memory, each other time as a tile that
                    raises a counter; another SM waits for it. Nobody stores to the remote owner.
``port-mates``      the same, while the other SMs of the port store 32 KB bursts to it without a pause
``other ports``     ... every other port of each branch
``other branch``    ... the ports of the other branch
``own backlog``     every SM: a tile of 8 KB remote and 24 KB local bytes, then a local one of 32 KB that
                    raises a counter
``own full room``   the same with 32 KB remote bytes

``platform`` names the profile whose ports the GPU has. ``compare`` prints both, each figure a mean over the
time in which all are busy: the constants of hand-over and signals, and the division of Q, stand or fall with
them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.spans import SpanKind
from xstage_tune.devices.opener import open_cuda
from xstage_tune.devices.spec import EMULATE
from xstage_tune.launches.device import Device
from xstage_tune.launches.skeletons import TOTALS, Skeleton, SkeletonRun
from xstage_tune.launches.streams import NO_COUNTER, Floats, Streams
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import ArbitrationGroup, PlatformProfile
from xstage_tune.simulator.device import SimulatedDevice

FLAVOURS: tuple[StoreFlavour, ...] = ("st.v4", "tma")
_SPIN_NS, _PROBE_SPIN_NS = 1_000.0, 20_000.0
_PROBES, _BURSTS, _BACKLOGS = 160, 150, 60
_KB = 1024

Neighbours = Literal["idle", "port-mates", "other ports", "other branch"]


class Tile(NamedTuple):
    """A tile of a launch."""

    mainloop_ns: float
    remote_bytes: int = 0
    local_bytes: int = 16
    waits_on: int = NO_COUNTER
    signals: int = NO_COUNTER


def neighbours(platform: PlatformProfile, busy: Neighbours, flavour: StoreFlavour) -> Skeleton:
    """A probing SM and one that waits for its counters at some ports, and saturating SMs as ``busy`` says."""
    tiles = [[Tile(_SPIN_NS)] for _ in range(platform.gpu.sm_count)]
    probes = 0
    for group, place in _placed(platform):
        sms = list(group.sm_ids)
        probing = {
            "idle": True,
            "port-mates": True,
            "other ports": place % 2 == 1,
            "other branch": group.branch == 1,
        }[busy]
        saturating = {"idle": [], "port-mates": sms[2:]}.get(busy, [] if probing else sms)
        for sm in saturating:
            tiles[sm] = [Tile(_SPIN_NS, 32 * _KB, 0)] * _BURSTS
        if probing:
            first = probes * _PROBES
            plain = Tile(_PROBE_SPIN_NS, 0, 16 * _KB)
            counters = range(first, first + _PROBES)
            tiles[sms[0]] = [tile for c in counters for tile in (plain._replace(signals=c), plain)]
            tiles[sms[1]] = [Tile(_SPIN_NS, waits_on=c) for c in counters]
            probes += 1
    return _skeleton(busy, tiles, flavour)


def own_backlog(
    platform: PlatformProfile, name: str, remote_bytes: int, local_bytes: int, flavour: StoreFlavour
) -> Skeleton:
    """Every SM alternates between a tile with remote bytes and a local one that raises a counter."""
    tiles = [
        [
            tile
            for c in range(sm * _BACKLOGS, (sm + 1) * _BACKLOGS)
            for tile in (
                Tile(_SPIN_NS, remote_bytes, local_bytes),
                Tile(_SPIN_NS, 0, 32 * _KB, signals=c),
            )
        ]
        for sm in range(platform.gpu.sm_count)
    ]
    return _skeleton(name, tiles, flavour)


def experiments(platform: PlatformProfile) -> Iterator[Skeleton]:
    """All launches."""
    busy: tuple[Neighbours, ...] = ("idle", "port-mates", "other ports", "other branch")
    for flavour in FLAVOURS:
        for name in busy:
            yield neighbours(platform, name, flavour)
        yield own_backlog(platform, "own backlog", 8 * _KB, 24 * _KB, flavour)
        yield own_backlog(platform, "own full room", 32 * _KB, 0, flavour)


def _placed(platform: PlatformProfile) -> Iterator[tuple[ArbitrationGroup, int]]:
    """The platform's ports, each with its place in its branch."""
    assert platform.arbitration is not None, "the profile must say which SMs share a port"
    places = [0, 0]
    for group in platform.arbitration.groups:
        yield group, places[group.branch]
        places[group.branch] += 1


def _skeleton(name: str, tiles: Sequence[Sequence[Tile]], flavour: StoreFlavour) -> Skeleton:
    rows = [tile for of_sm in tiles for tile in of_sm]
    signals = np.array([tile.signals for tile in rows], np.int32)
    streams = Streams(
        first=np.concatenate(([0], np.cumsum([len(of_sm) for of_sm in tiles]))),
        mainloop_ns=np.array([tile.mainloop_ns for tile in rows]),
        staging_ns=np.zeros(len(rows)),
        remote_bytes=np.array([float(tile.remote_bytes) for tile in rows]),
        slot_offset_ns=np.zeros(len(rows)),
        waits_on=np.array([tile.waits_on for tile in rows], np.int32),
        signals=signals,
        signals_at_end=np.zeros(len(rows), np.bool_),
        counters=int(signals.max()) + 1,
    )
    local_bytes = np.array([float(tile.local_bytes) for tile in rows])
    return Skeleton(f"{name} {flavour}", streams, local_bytes, 2, flavour, "host")


@dataclass(frozen=True, slots=True)
class Waits:
    """Means over a launch, ns; None where no tile of the kind is in it.

    Args:
        remote_issue_ns, raising_issue_ns, plain_issue_ns: T_RS of tiles with remote bytes, of those that
            raise a counter, and of local ones that do not.
        raised_ns: from the acceptance of a raising tile's stores to its counter's being raised; over the
            whole launch.
        seen_ns: from that acceptance to the begin of the mainloop that waits for the counter.
        handover_ns: of a probing SM's mainloop role between two mainloops.
    """

    remote_issue_ns: float | None
    raising_issue_ns: float | None
    plain_issue_ns: float | None
    raised_ns: float | None
    seen_ns: float | None
    handover_ns: float | None


def waits_of(run: SkeletonRun) -> Waits:
    """The figures of a launch, of bursts well after its start, while its saturating SMs are all busy."""
    streams, totals = run.launch.streams, run.arrays[TOTALS]
    issue, accepted = _moments(run, SpanKind.ISSUE)
    begin, _ = _moments(run, SpanKind.MAINLOOP)
    remote, raises = streams.remote_bytes > 0, streams.signals != NO_COUNTER
    saturating = totals["remote_tiles"] > 0
    busy = np.ones(streams.tiles, np.bool_)
    if saturating.any():
        start_ns, lasts_ns = np.nanmin(begin), totals["finish_ns"][saturating].min()
        busy = (issue > start_ns + lasts_ns / 10) & (issue < start_ns + lasts_ns)
    plain = ~remote & ~raises & (run.launch.local_bytes >= _KB)

    waits = np.flatnonzero(streams.waits_on != NO_COUNTER)
    raiser = np.zeros(streams.counters, np.int64)
    raiser[streams.signals[raises]] = np.flatnonzero(raises)
    raised_by = raiser[streams.waits_on[waits]]
    seen_ns = (begin[waits] - accepted[raised_by])[busy[raised_by]]

    probing = np.flatnonzero(streams.mainloop_ns[:-1] == _PROBE_SPIN_NS)
    probing = probing[streams.mainloop_ns[probing + 1] == _PROBE_SPIN_NS]
    handover_ns = begin[probing + 1] - begin[probing] - _PROBE_SPIN_NS
    return Waits(
        remote_issue_ns=_mean((accepted - issue)[remote & busy]),
        raising_issue_ns=_mean((accepted - issue)[raises & busy]),
        plain_issue_ns=_mean((accepted - issue)[plain & busy]),
        raised_ns=float(totals["signal_ns"].sum() / np.count_nonzero(raises)),
        seen_ns=_mean(seen_ns),
        # One that waits for a slot, or turns to another SM's tile, says nothing of the hand-over.
        handover_ns=None if saturating.any() else _mean(handover_ns[handover_ns > 0]),
    )


def _moments(run: SkeletonRun, kind: SpanKind) -> tuple[Floats, Floats]:
    """Begin and end of each tile's first span of a kind, ``[n]``; NaN where it was not kept."""
    table, first = run.table, run.launch.streams.first
    some = np.flatnonzero(table.spans["kind"] == kind)[::-1]
    begin, end = np.full((2, run.launch.streams.tiles), np.nan)
    tile = first[table.spans["lane"][some].astype(np.int64)] + table.spans["index"][some]
    begin[tile] = table.begin_ns()[some]
    end[tile] = begin[tile] + table.duration_ns()[some]
    return begin, end


def _mean(values: Floats) -> float | None:
    return float(np.nanmean(values)) if values.size else None


def run_all(device: Device, platform: PlatformProfile) -> dict[str, Waits]:
    """All launches on a device, by label."""
    return {run.launch.label: waits_of(run) for run in device.run(list(experiments(platform)))}


def _print(simulated: dict[str, Waits], measured: dict[str, Waits]) -> None:
    columns = ("T_RS remote", "raising", "plain", "raised after", "seen after", "handed over")
    print("us, simulated / measured".ljust(22) + "".join(column.rjust(16) for column in columns))
    for label, ours in simulated.items():
        pairs = zip(asdict(ours).values(), asdict(measured[label]).values(), strict=True)
        cells = ("-" if a is None or b is None else f"{a / 1e3:.2f} / {b / 1e3:.2f}" for a, b in pairs)
        print(label.ljust(22) + "".join(cell.rjust(16) for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("-o", "--output", type=Path, required=True)
    measuring.add_argument("--device", type=int, default=0)
    comparing = commands.add_parser("compare")
    comparing.add_argument("file", type=Path)
    for command in (measuring, comparing):
        command.add_argument("--platform", default="h200-host")
    given = parser.parse_args()
    platform = load_platform(given.platform)
    if given.command == "compare":
        measured = {label: Waits(**row) for label, row in json.loads(given.file.read_text()).items()}
        _print(run_all(SimulatedDevice(platform), platform), measured)
        return
    device = open_cuda(EMULATE, str(given.device))
    try:
        rows = {label: asdict(waits) for label, waits in run_all(device, platform).items()}
        given.output.write_text(json.dumps(rows, indent=1))
    finally:
        device.close()


if __name__ == "__main__":
    main()
