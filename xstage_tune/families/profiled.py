"""What launches of a profile are, of whatever family: checks, replays in turn, and spans."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import FindingError
from xstage_tune.base.field_types import Count, Positive
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.device import LaunchKind, Outcome, Verification

Floats = NDArray[np.float64]

What = Literal["check", "replay", "spans"]
#: Spans of one launch that are kept: about 100 kB.
MOST_SPANS = 12_000


class ProfiledCase(Protocol):
    """One shape, all of whose implementations are timed together."""

    @property
    def label(self) -> str:
        """Unique in a request; empty for its only one."""
        ...

    @property
    def words(self) -> str:
        """What runs it, in errors."""
        ...


@dataclass(frozen=True, slots=True)
class CheckFigures:
    """Whether an implementation's output is right.

    Args:
        relative_error: norm of the error over that of an fp32 reference, on sampled rows; None where the
            output is compared with another implementation's.
        place: where the output is wrong first, or most; empty where it is right.
    """

    relative_error: float | None
    place: str
    what: Literal["check"] = "check"


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """Replays of a CUDA graph: ``launches`` of an implementation back to back, or in some runs of them.

    Args:
        time_ns: of one of them, between events around each run; the mean.
    """

    launches: Count
    time_ns: Positive
    what: Literal["replay"] = "replay"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of a kind of spans; times in ns."""

    count: int
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    max_ns: float


def distribution(sample_ns: Floats) -> Distribution | None:
    """Mean and quantiles of a sample; None of an empty one."""
    if not sample_ns.size:
        return None
    p50, p90, p99, most = np.quantile(sample_ns, (0.5, 0.9, 0.99, 1.0)).tolist()
    return Distribution(sample_ns.size, float(sample_ns.mean()), p50, p90, p99, most)


def sampled_ctas(table: SpanTable, lanes_per_cta: int, most_spans: int) -> SpanTable:
    """All spans of CTAs spread evenly, about ``most_spans`` in all; of the others only the clocks."""
    if len(table.spans) <= most_spans:
        return table
    cta = np.arange(len(table.lanes)) // lanes_per_cta
    chosen = cta % ceil(len(table.spans) / most_spans) == 0
    lanes = table.lanes.copy()
    lanes["recorded"][~chosen] = 0
    return SpanTable(table.spans[chosen[table.spans["lane"]]], lanes)


CaseT = TypeVar("CaseT", bound=ProfiledCase)
NameT = TypeVar("NameT", bound=str)


@dataclass(frozen=True, slots=True)
class ProfiledLaunch(Generic[CaseT, NameT]):
    """One thing that is done with an implementation of a case.

    ``check``: run once on poisoned buffers and compare the output. ``replay``: one place of a timing of
    implementations that run in turn, over and over, without a pause; the launches of all places are asked for
    one behind the other. ``spans``: those of the last of some launches of a variant that records them.

    Args:
        in_turn, place: of a replay: which implementations run in turn, and which of them this times.
    """

    case: CaseT
    implementation: NameT
    what: What
    in_turn: tuple[NameT, ...] = ()
    place: int = 0

    @property
    def kind(self) -> LaunchKind[Any, Any, Any]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        raise NotImplementedError

    def turns(self) -> tuple[Self, ...]:
        """The launches of all places of a replay."""
        return tuple(
            type(self)(self.case, one, "replay", self.in_turn, place)
            for place, one in enumerate(self.in_turn)
        )


LaunchT = TypeVar("LaunchT", bound=ProfiledLaunch[Any, Any])
FiguresT = TypeVar("FiguresT")
PointT = TypeVar("PointT")


class ProfiledKind(LaunchKind[LaunchT, FiguresT, PointT]):
    """What a recording makes of a family's launches: one of a case and implementation is found by both."""

    def keys(self, launch: LaunchT) -> dict[str, Any]:
        """See :class:`~xstage_tune.launches.device.LaunchKind`."""
        return {"label": launch.case.label, "implementation": launch.implementation, "what": launch.what}

    def words(self, launch: LaunchT) -> str:
        """See :class:`~xstage_tune.launches.device.LaunchKind`."""
        label = launch.case.label
        return f"{launch.implementation}{f', {label}' if label else ''} ({launch.what})"


def require_right(checked: Outcome[Any, Any], tolerance: float) -> None:
    """Refuse a check that found a wrong output; other launches pass.

    Args:
        tolerance: of relative errors.

    Raises:
        FindingError: says which implementation's, and where.
    """
    figures, found = checked.figures, checked.verification
    if not isinstance(figures, CheckFigures):
        return
    wrong = complaint(figures, found, tolerance)
    if not wrong:
        return
    case = checked.launch.case
    of = f"{case.words}{f', {case.label}' if case.label else ''}"
    raise FindingError(
        f"the output of {checked.launch.implementation} is wrong ({of}): {wrong}; "
        f"{found.mismatched_bytes:,} of {found.checked_bytes:,} bytes",
        "do not use this kernel; xstage-tune doctor tests each path",
    )


def complaint(figures: CheckFigures, found: Verification, tolerance: float) -> str:
    """What is wrong with a checked output; empty where nothing is."""
    if figures.place:
        return figures.place
    if not found.checked_bytes:
        return "nothing was checked"
    if found.mismatched_bytes:
        return "bytes differ"
    error = figures.relative_error
    return "" if error is None or error <= tolerance else f"relative error {error:.3g} against fp32"
