"""The platform profile: a measured M_X = (T0, R, Q) with intervals, sources and provenance.

One TOML file a platform. Strict: a missing, misspelt or out-of-range key is an error that names
the file and the key (see :mod:`xstage_tune.platforms.loader`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from xstage_tune.devices.base import StoreFlavour, StorePath

SCHEMA_VERSION: Literal[1] = 1

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
Interval = tuple[NonNegative, NonNegative]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Gpu(Strict):
    """The sending GPU."""

    name: str
    architecture: str
    sm_count: Count
    sm_clock_mhz: Positive
    l2_bytes: Count


class Drain(Strict):
    """R: aggregate rate at which accepted stores leave (equation 1)."""

    bytes_per_s: Positive
    ci95: Interval | None = None
    copy_engine_bytes_per_s: Positive | None = None
    source: str


class IssuePoint(Strict):
    """T0 of one producer's burst without backpressure (section 3.2)."""

    flavour: StoreFlavour
    producers: Count
    burst_bytes: Count
    ns: Positive
    ci95: Interval | None = None
    source: str


class CapacityPoint(Strict):
    """Q(K): bytes that may be outstanding before an isolated burst stalls (equation 7)."""

    flavour: StoreFlavour
    producers: Count
    bytes: Positive
    ci95: Interval | None = None
    #: False when no knee was reached: ``bytes`` is then only a lower bound.
    knee_reached: bool = True
    source: str


class CapacityLaw(Strict):
    """The law of Q against K that the data support, for one flavour.

    ``constant``: Q = scale_bytes. ``linear``: Q = scale_bytes * K. ``power``: Q = scale_bytes * K**exponent.
    ``saturating``: Q = scale_bytes * (1 - exp(-K / producers_scale)).
    """

    flavour: StoreFlavour
    law: Literal["constant", "linear", "power", "saturating"]
    scale_bytes: Positive
    exponent: float | None = None
    producers_scale: Positive | None = None
    rms_relative_error: NonNegative


class ArbitrationGroup(Strict):
    """SMs that share one port of the arbiter; ``share`` is the group's fraction of R."""

    sm_ids: tuple[Annotated[int, Field(ge=0)], ...]
    share: Annotated[float, Field(gt=0, le=1)]


class Arbitration(Strict):
    """How R is divided among saturating producers, by SM id."""

    groups: tuple[ArbitrationGroup, ...]
    repeat_correlation: Annotated[float, Field(ge=-1, le=1)]
    #: Largest relative deviation of a measured per-SM share from the group law, at full occupancy.
    max_relative_error: NonNegative | None = None
    source: str

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Arbitration:
        total = sum(group.share for group in self.groups)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"group shares sum to {total:.6f}, not 1")
        ids = [sm for group in self.groups for sm in group.sm_ids]
        if len(ids) != len(set(ids)):
            raise ValueError("an SM id is in two groups")
        return self


class Corner(Strict):
    """Softening of the corner of equation 3 near G*.

    With a = T0 and b = V/R - G, the plain law is max(a, b); the soft law is
    max(a, b) + width * log1p(exp(-|a - b| / width)), width = width_fraction * V/R.
    """

    width_fraction: Positive
    plain_median_pct: NonNegative
    soft_median_pct: NonNegative


class Validation(Strict):
    """Relative errors on points that the fit never saw, in percent."""

    period_median_pct: NonNegative
    period_p95_pct: NonNegative
    issue_median_pct: NonNegative
    issue_p95_pct: NonNegative
    isolated_median_pct: NonNegative
    isolated_p95_pct: NonNegative
    points: Count


class LocalControl(Strict):
    """The same producers storing to their own memory: must not depend on the gap."""

    producers: Count
    burst_bytes: Count
    issue_ns: Positive
    #: (max - min) / median of the mean issue time over the gap sweep.
    gap_spread: NonNegative


class Provenance(Strict):
    """Where the numbers come from."""

    created_at: str
    tool_version: str
    argv: tuple[str, ...] = ()
    host: str = ""
    gpu_uuid: str = ""
    driver: str = ""
    cuda: str = ""
    kernel_sha256: str = ""
    seed: int | None = None
    run_id: str = ""


class PlatformProfile(Strict):
    """One sending GPU and one path, calibrated."""

    schema_version: Literal[1] = SCHEMA_VERSION
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    description: str = ""
    path: StorePath
    gpu: Gpu
    drain: Drain
    issue: tuple[IssuePoint, ...] = Field(min_length=1)
    capacity: tuple[CapacityPoint, ...] = ()
    capacity_law: tuple[CapacityLaw, ...] = ()
    arbitration: Arbitration | None = None
    corner: Corner | None = None
    validation: Validation | None = None
    local_control: LocalControl | None = None
    provenance: Provenance
