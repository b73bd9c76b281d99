"""The launches of a calibration: bursts of remote stores, and the copy engine beside them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from pydantic import TypeAdapter

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.launches.device import LaunchKind, Outcome

BurstMode = Literal["periodic", "isolated"]


@dataclass(frozen=True, slots=True)
class BurstPoint:
    """One microbenchmark: K producers, each storing bursts of B bytes (section 3.1).

    ``periodic``: every producer repeats (burst, spin for ``gap_ns``) until ``window_ns`` after a
    common start, so that all are active up to the same deadline. ``isolated``: ``bursts`` bursts,
    each starting on a common deadline, ``gap_ns`` from start to start.

    The hardware chooses the SMs, unless ``idle_sms`` names those that are to stay idle: then every other SM
    has a producer. Two points that compare equal ask for the same measurement; ``repeat`` tells repetitions
    apart.
    """

    mode: BurstMode
    path: StorePath
    flavour: StoreFlavour
    producers: int
    burst_bytes: int
    gap_ns: int
    window_ns: int = 0  # periodic only
    bursts: int = 0  # isolated only
    repeat: int = 0
    idle_sms: tuple[int, ...] = ()

    @property
    def volume_bytes(self) -> int:
        """Aggregate burst volume V = K*B."""
        return self.producers * self.burst_bytes

    @property
    def kind(self) -> LaunchKind[BurstPoint, None, BurstPoint]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return BURSTS


#: All that a burst run tells is in its spans.
BurstRun = Outcome[BurstPoint, None]


class _Bursts(LaunchKind[BurstPoint, None, BurstPoint]):
    name = "bursts"
    figures = TypeAdapter(None)
    told_apart = True
    modes = ("periodic", "isolated")
    points = TypeAdapter(BurstPoint)

    def keys(self, launch: BurstPoint) -> dict[str, Any]:
        """All of the point."""
        return {**asdict(launch), "idle_sms": list(launch.idle_sms)}

    def words(self, launch: BurstPoint) -> str:
        return f"{launch.mode} {launch.flavour} K={launch.producers} B={launch.burst_bytes}"

    def point(self, outcome: BurstRun) -> BurstPoint:
        return outcome.launch


BURSTS = _Bursts()


@dataclass(frozen=True, slots=True)
class CopyProbe:
    """Copies of the copy engine from the GPU to the owner of a path."""

    path: StorePath

    @property
    def kind(self) -> LaunchKind[CopyProbe, CopyRate, None]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return COPY_RATES


@dataclass(frozen=True, slots=True)
class CopyRate:
    """Rate of the copy engine on a path, the yardstick that R may not exceed.

    Everywhere it is the median of the samples: where R is judged by it, in a profile, and in "R is x% of it".
    A sample that others' traffic slowed does not move it, nor does one that was timed short.
    """

    path: StorePath
    copy_bytes: int
    samples_bytes_per_s: tuple[float, ...]

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; None without a sample."""
        return median(self.samples_bytes_per_s) if self.samples_bytes_per_s else None


class _CopyRates(LaunchKind[CopyProbe, CopyRate, None]):
    name = "copy-rate"
    figures = TypeAdapter(CopyRate)
    told_apart = True

    def keys(self, launch: CopyProbe) -> dict[str, Any]:
        return {"path": launch.path}

    def words(self, launch: CopyProbe) -> str:
        return f"copies on path {launch.path}"


COPY_RATES = _CopyRates()
