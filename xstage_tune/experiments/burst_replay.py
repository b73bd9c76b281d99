"""Bursts of an imported timeline, emulated: measured gaps are spun, bursts stored on this fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from xstage_tune.audit.numbers import MOST_BURST_BYTES
from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.field_types import Count, NonNegative, Whole
from xstage_tune.base.limits import REPEATS, SEED, SPIN_NS
from xstage_tune.base.medians import median_or_none
from xstage_tune.base.number_format import duration
from xstage_tune.base.parsing import parse_byte_count
from xstage_tune.base.progress import Progress
from xstage_tune.base.request import Request
from xstage_tune.families.fused_skeleton import LONGEST_SPIN_NS, require_verified
from xstage_tune.launches.device import Device
from xstage_tune.launches.requirements import require_device, require_platform_path
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.launches.streams import independent_streams
from xstage_tune.platforms.latencies import latencies_of
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.spans.bursts import StoreBursts
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_launches

#: The kind of such a run in the store.
EMULATE_SPANS = "emulate-spans"
_STORE_BYTES = 16
_MOST_BURSTS = 1_000_000


class ReplayRequest(Request):
    """One emulation of imported bursts.

    Args:
        run: of the import.
        names: of the spans that are bursts.
        burst_bytes: B of each of them.
        epilogue_ns: what each spent on anything but its remote stores, before them.
        platform: calibrated, of ``path``.
        repeats: launches of each timeline.
        seed: of the simulator's start times.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.
    """

    OF: ClassVar[str] = "an emulation of spans"

    run: str
    names: tuple[str, ...]
    burst_bytes: Count
    epilogue_ns: Annotated[NonNegative, SPIN_NS] = 0.0
    platform: PlatformProfile
    path: StorePath
    flavour: StoreFlavour
    repeats: Annotated[Whole, REPEATS] = 5
    seed: Annotated[Whole, SEED] = 0
    other_gpu: str = ""


@dataclass(frozen=True, slots=True)
class ReplayedBursts:
    """One timeline and its launches."""

    bursts: StoreBursts
    launches: tuple[LaunchFigures, ...]

    @property
    def makespan_ns(self) -> float:
        """Median over the launches: until the last burst is accepted."""
        return float(np.median([launch.makespan_ns for launch in self.launches]))

    @property
    def issue_ns(self) -> float | None:
        """Mean T_RS, its median over the launches."""
        means = (launch.issue_mean_ns for launch in self.launches)
        return median_or_none([mean for mean in means if mean is not None])


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """All timelines of a request, in the order of their files."""

    request: ReplayRequest
    run_id: str
    device: str
    replayed: tuple[ReplayedBursts, ...]

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON; times in ns."""
        return {
            "run_id": self.run_id,
            "imported": self.request.run,
            "platform": self.request.platform.name,
            "device": self.device,
            "burst_bytes": self.request.burst_bytes,
            "epilogue_ns": self.request.epilogue_ns,
            "timelines": [
                {
                    "file": one.bursts.source,
                    "bursts": one.bursts.gap_ns.size,
                    "producers": one.bursts.producers,
                    "recorded_makespan_ns": one.bursts.makespan_ns,
                    "makespan_ns": one.makespan_ns,
                    "recorded_issue_ns": float(one.bursts.length_ns.mean()),
                    "issue_ns": one.issue_ns,
                }
                for one in self.replayed
            ],
        }


def replay_bursts(
    device: Device,
    request: ReplayRequest,
    store: Store,
    bursts: Sequence[StoreBursts],
    *,
    argv: Sequence[str],
    progress: Progress,
) -> ReplayResult:
    """Emulate each timeline, keeping every launch in the store; on a GPU behind a round that nobody times.

    Raises:
        UsageError: a timeline does not fit the GPU, or a skeleton.
        DeviceError, FindingError, StoreError, RunInterrupted: as of any emulation.
    """
    description = device.describe()
    require_device(description, request.platform, request.path, force=bool(request.other_gpu))
    require_platform_path(request.platform, request.path)
    skeletons = [skeleton_of(one, request, number) for number, one in enumerate(bursts)]
    if description.kind == "cuda":
        for run in device.run(skeletons):
            require_verified(run)
    found: list[list[LaunchFigures]] = [[] for _ in skeletons]
    begun = kept_launches(
        device, request, store, EMULATE_SPANS, argv=argv, progress=progress, record=None, force=False
    )
    with begun as kept:
        progress.planned(request.repeats * len(skeletons))
        for _ in range(request.repeats):
            for number, run in enumerate(kept.run(skeletons)):
                require_verified(run)
                found[number].append(run.figures)
    replayed = tuple(ReplayedBursts(one, tuple(its)) for one, its in zip(bursts, found, strict=True))
    return ReplayResult(request, kept.run_id, device.identity, replayed)


def parse_burst_bytes(text: str | None) -> int:
    """The size of each burst, as an option gives it.

    Raises:
        UsageError: it is none, more than an SM stages, or not of whole stores.
    """
    if text is None:
        raise UsageError("--burst-bytes is missing: spans do not tell it", "for example --burst-bytes 32KiB")
    try:
        size = parse_byte_count(text)
    except ValueError as error:
        raise UsageError(f"--burst-bytes: {error}", "for example 32KiB") from None
    if not 0 < size <= MOST_BURST_BYTES or size % _STORE_BYTES:
        raise UsageError(
            f"--burst-bytes {text}: should be whole stores of {_STORE_BYTES} bytes, at most "
            f"{MOST_BURST_BYTES:,} bytes",
            "for example 32KiB",
        )
    return size


def skeleton_of(bursts: StoreBursts, request: ReplayRequest, number: int = 0) -> Skeleton:
    """A timeline as a launch: one slot, so that a gap begins where the burst before it was accepted.

    What a skeleton itself spends between two bursts is taken off the gap. SMs keep their numbers, by which a
    path may serve them unequally.

    Args:
        number: of the file in its run.

    Raises:
        UsageError: it has more SMs than the platform, too many bursts, or a gap that cannot be spun.
    """
    sms = request.platform.gpu.sm_count
    if bursts.producers > sms:
        raise UsageError(
            f"{bursts.source}: bursts on {bursts.producers:,} lanes, more than the {sms} SMs of "
            f"'{request.platform.name}'",
            "a lane stands for an SM: record persistent CTAs, or with xstage/span.cuh, which tells SMs",
        )
    if bursts.gap_ns.size > _MOST_BURSTS:
        raise UsageError(f"{bursts.source}: more than {_MOST_BURSTS:,} bursts", "import a shorter part")
    longest_ns = float(bursts.gap_ns.max())
    if longest_ns > LONGEST_SPIN_NS:
        raise UsageError(
            f"{bursts.source}: a gap of {duration(longest_ns)}, longer than a spin may last, "
            f"{duration(LONGEST_SPIN_NS)}",
            "import a shorter part: one launch of the kernel",
        )
    handover_ns = latencies_of(request.platform).handover.ns
    placed = bursts.sms if bursts.sms[-1] < sms else np.arange(bursts.producers)
    tiles = np.zeros(sms, np.int64)
    tiles[placed] = np.diff(bursts.first)
    streams = independent_streams(
        np.concatenate(([0], np.cumsum(tiles))),
        np.maximum(1.0, bursts.gap_ns - handover_ns),
        staging_ns=request.epilogue_ns,
        remote_bytes=float(request.burst_bytes),
    )
    return Skeleton(
        label=f"{number}: {bursts.source}",
        streams=streams,
        local_bytes=np.zeros(streams.tiles),
        staging_slots=1,
        flavour=request.flavour,
        path=request.path,
    )
