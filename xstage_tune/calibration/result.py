"""What a calibration hands to the store, the reports and the platform profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.platforms.schema import PlatformProfile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something the measurement shows that a user must know.

    ``refuse`` findings forbid writing a profile: the numbers would mislead.
    """

    code: str  # stable identifier, e.g. "drain-above-copy-engine"
    severity: Literal["refuse", "warn"]
    message: str  # one line with the numbers
    hint: str = ""


@dataclass(frozen=True, slots=True)
class GapCurve:
    """Panels (a) and (b): one (K, B) swept over the gap, measured and predicted."""

    flavour: StoreFlavour
    producers: int
    burst_bytes: int
    gap_ns: Floats  # realised
    issue_ns: Floats
    period_ns: Floats
    predicted_issue_ns: Floats  # equation 3
    predicted_period_ns: Floats
    local_gap_ns: Floats  # local control; empty when it was not run
    local_issue_ns: Floats


@dataclass(frozen=True, slots=True)
class IsolatedCurve:
    """Panel (c): isolated bursts of K producers against the volume, measured and fitted."""

    flavour: StoreFlavour
    producers: int
    volume_bytes: Floats
    issue_ns: Floats
    predicted_issue_ns: Floats  # equation 7
    held_out: NDArray[np.bool_]  # points the fit never saw


@dataclass(frozen=True, slots=True)
class DrainPoints:
    """Panel (d): zero-gap period against volume over all (K, B) of one flavour."""

    flavour: StoreFlavour
    producers: NDArray[np.int64]
    burst_bytes: NDArray[np.int64]
    volume_bytes: Floats
    period_ns: Floats  # V over the aggregate rate of the common window
    bytes_per_s: Floats
    drain_dominated: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """A fitted platform with everything that its plots and tables show."""

    platform: PlatformProfile
    gap_curves: tuple[GapCurve, ...]
    isolated_curves: tuple[IsolatedCurve, ...]
    drain_points: tuple[DrainPoints, ...]
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        """True when a finding forbids writing the profile."""
        return any(finding.severity == "refuse" for finding in self.findings)
