"""The platform profile: a measured M_X = (T0, R, Q) with intervals, sources and provenance.

One TOML file a platform. Strict: a missing, misspelt or out-of-range key is an error that names
the file and the key (see :mod:`xstage_tune.platforms.loader`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    model_serializer,
    model_validator,
)

from xstage_tune.devices.base import StoreFlavour, StorePath
from xstage_tune.profile_types import (
    Count,
    Finite,
    Fraction,
    NonNegative,
    Positive,
    Strict,
    Tally,
    Whole,
)

SCHEMA_VERSION: Literal[1] = 1

Interval = tuple[NonNegative, NonNegative]


class Gpu(Strict):
    """The sending GPU."""

    name: str
    architecture: str
    sm_count: Count
    sm_clock_mhz: Positive
    l2_bytes: Count
    source: str = ""


#: Rates that stores cannot exceed vary by so much from sample to sample.
_RATE_TOLERANCE = 0.01


def surely_above(lowest_bytes_per_s: float, limit_bytes_per_s: float) -> bool:
    """Whether a rate of stores, by the low end of its interval, is above one that they cannot exceed."""
    return lowest_bytes_per_s > limit_bytes_per_s * (1 + _RATE_TOLERANCE)


class Drain(Strict):
    """R: aggregate rate at which accepted stores leave (equation 1)."""

    bytes_per_s: Positive
    ci95: Interval | None = None
    copy_engine_bytes_per_s: Positive | None = None  # see devices.base.CopyRate
    source: str

    @property
    def copy_engine_fraction(self) -> float | None:
        """R as a fraction of the copy engine's rate; None where that is not known."""
        return self.bytes_per_s / self.copy_engine_bytes_per_s if self.copy_engine_bytes_per_s else None


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
    #: The most outstanding at which not even the slowest producer stalled. Below ``bytes`` where ports are
    #: served unevenly: in between, single producers wait long while the mean producer hardly does.
    onset_bytes: Positive | None = None
    #: False when no knee was reached: ``bytes`` is then only a lower bound.
    knee_reached: StrictBool = True
    source: str


class CapacityLaw(Strict):
    """The law of Q against K that the data support, for one flavour.

    ``constant``: Q = scale_bytes. ``linear``: Q = scale_bytes * K. ``power``: Q = scale_bytes * K**exponent.
    ``saturating``: Q = scale_bytes * (1 - exp(-K / producers_scale)).
    """

    flavour: StoreFlavour
    law: Literal["constant", "linear", "power", "saturating"]
    scale_bytes: Positive
    exponent: Finite | None = None
    producers_scale: Positive | None = None
    rms_relative_error: NonNegative

    @model_validator(mode="after")
    def _has_its_parameter(self) -> CapacityLaw:
        needed = {"power": "exponent", "saturating": "producers_scale"}.get(self.law)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"law '{self.law}' needs the key '{needed}'")
        return self


class ArbitrationGroup(Strict):
    """SMs that share one port of the arbiter; ``share`` is the group's fraction of R."""

    sm_ids: tuple[Tally, ...]
    share: Fraction
    #: The branch that the port lies on.
    branch: Tally = 0


class ArbitrationPrediction(Strict):
    """Shares that the group law predicts for K saturating producers, against those measured."""

    producers: Count
    median_relative_error: NonNegative
    max_relative_error: NonNegative


class Arbitration(Strict):
    """How R is divided among saturating producers, by SM id.

    A hierarchical round robin. Branches with an active producer share R by weight, the sum of their
    groups' shares; so do, by ``share``, the groups with one inside a branch; the active SMs of a group
    share equally.
    """

    groups: tuple[ArbitrationGroup, ...]
    predictions: tuple[ArbitrationPrediction, ...] = ()
    repeat_correlation: Annotated[Finite, Field(ge=-1, le=1)]
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
    plain_p95_pct: NonNegative | None = None
    soft_p95_pct: NonNegative | None = None


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


class TensorRate(Strict):
    """Tensor Core rate of the whole GPU for one operand type, dense."""

    dtype: Literal["bf16", "fp8"]
    peak_flop_per_s: Positive
    #: Fraction of the peak that the mainloop of a full tile reaches.
    tile_efficiency: Fraction
    source: str


class SplitTile(Strict):
    """Time of an attention tile whose KV two CTAs share."""

    #: Sigma of its Q-loops: neighbouring SMs read different KV tiles.
    kv_tile_ns: Positive
    #: What a Q-loop takes beyond its KV tiles and what is fixed, for merging with the other CTA's.
    exchange_ns: NonNegative
    #: As the whole tile's, of the one warpgroup that stages rows in a CTA; that one where it is not known.
    staging_ns: NonNegative | None = None


class AttentionTile(Strict):
    """Time of one KV tile of a Q-loop on one SM: sigma of equation 20."""

    dtype: Literal["bf16"]
    block_m: Count
    block_n: Count
    head_dim: Count
    kv_tile_ns: Positive
    #: Part of a Q-loop that does not grow with the number of KV tiles.
    fixed_ns: NonNegative
    #: From the Q-loop's end until the tile's rows are staged for their stores; None where it is not known.
    staging_ns: NonNegative | None = None
    #: Where two CTAs share the tile; None where that is not known.
    split: SplitTile | None = None
    source: str

    @model_serializer(mode="wrap")
    def _without_unknown_split(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A profile of before tiles were split keeps its hash, by which studies know it."""
        keys: dict[str, Any] = serialize(self)
        if self.split is None:
            keys.pop("split", None)
        return keys


class Compute(Strict):
    """What turns the shape of a tile into its time, and the limits that a tile must fit."""

    tensor: tuple[TensorRate, ...] = Field(min_length=1)
    attention: tuple[AttentionTile, ...] = ()
    #: Fixed cost of a mainloop beside its FLOPs, with the next tile's operands already prefetched.
    tile_fill_ns: NonNegative
    memory_bytes_per_s: Positive
    shared_bytes_per_cta: Count
    registers_per_sm: Count
    #: Accumulator memory beside the registers (TMEM); 0 where accumulators live in registers.
    tensor_memory_bytes_per_sm: Tally = 0
    source: str

    @model_validator(mode="after")
    def _entries_are_distinct(self) -> Compute:
        _require_distinct(
            {
                "tensor": [rate.dtype for rate in self.tensor],
                "attention": [
                    (tile.dtype, tile.block_m, tile.block_n, tile.head_dim) for tile in self.attention
                ],
            }
        )
        return self


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
    seed: Whole | None = None
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
    compute: Compute | None = None
    provenance: Provenance

    @model_validator(mode="after")
    def _points_are_distinct(self) -> PlatformProfile:
        _require_distinct(
            {
                "issue": [(point.flavour, point.producers, point.burst_bytes) for point in self.issue],
                "capacity": [(point.flavour, point.producers) for point in self.capacity],
                "capacity_law": [law.flavour for law in self.capacity_law],
            }
        )
        return self


def _require_distinct(entries: Mapping[str, Sequence[object]]) -> None:
    """What of each table's entries names them must name one.

    Raises:
        ValueError: two of a table have the same names.
    """
    for table, names in entries.items():
        if len(names) != len(set(names)):
            repeated = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{table} has two entries for {repeated}")
