"""The platform profile: a measured M_X = (T0, R, Q) with intervals, sources and provenance.

One TOML file a platform. Strict: a missing, misspelt or out-of-range key is an error that names
the file and the key (see :mod:`xstage_tune.platforms.loader`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    model_validator,
)

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.field_types import (
    Count,
    Finite,
    Fraction,
    Grown,
    NonNegative,
    Positive,
    Strict,
    Tally,
    Whole,
    refuse_problems,
)
from xstage_tune.base.redaction import redacted_arguments
from xstage_tune.platforms.identity import SIMULATED_UUID, GpuIdentity
from xstage_tune.platforms.latencies import FALLBACK, Latencies

SCHEMA_VERSION: Literal[1] = 1

Interval = tuple[NonNegative, NonNegative]

ComputeOrigin = Literal["measured", "published", "datasheet"]
Source = Annotated[
    str, Field(description="Where the numbers of this section come from", examples=["estimate"])
]
Flavour = Annotated[
    StoreFlavour,
    Field(
        description="How bytes leave an SM: as 16-byte stores of registers (st.v4), or as bulk copies from "
        "shared memory (tma)",
        examples=["st.v4"],
    ),
]
Producers = Annotated[
    Count, Field(description="Producers that store at once (K), one CTA an SM", examples=[132])
]
BurstBytes = Annotated[Count, Field(description="Bytes of one producer's burst (B)", examples=[32_768])]


class Gpu(GpuIdentity, Grown):
    """The sending GPU; profiles of before GPUs were told apart lack some of what identifies it."""

    #: No result is made of these: they only tell the GPU from others.
    gained = ("form_factor", "memory_bytes", "nvlink", "pcie", "mig", "identity_source")

    architecture: str = Field(description="Compute architecture, as compilers name it", examples=["sm_90a"])
    sm_count: Count = Field(description="SMs of the whole GPU, or of the slice", examples=[132])
    sm_clock_mhz: Positive = Field(description="SM clock under load, in MHz", examples=[1980.0])
    l2_bytes: Count = Field(description="Size of the L2 cache, in bytes", examples=[62_914_560])
    source: Source = ""
    identity_source: str | None = Field(
        default=None,
        description="Where what identifies the GPU comes from, if not from its driver",
        examples=["data sheet"],
    )

    @property
    def identity(self) -> GpuIdentity:
        """Which GPU it is."""
        return GpuIdentity(**{key: getattr(self, key) for key in GpuIdentity.model_fields})


#: Rates that stores cannot exceed vary by so much from sample to sample.
_RATE_TOLERANCE = 0.01


def surely_above(lowest_bytes_per_s: float, limit_bytes_per_s: float) -> bool:
    """Whether a rate of stores, by the low end of its interval, is above one that they cannot exceed."""
    return lowest_bytes_per_s > limit_bytes_per_s * (1 + _RATE_TOLERANCE)


class Drain(Strict):
    """R: aggregate rate at which accepted stores leave (equation 1)."""

    bytes_per_s: Positive = Field(
        description="R: rate at which stores of all SMs together leave the GPU, in bytes/s", examples=[374e9]
    )
    ci95: Interval | None = Field(
        None, description="95% interval of R, in bytes/s, [low, high]", examples=[[373e9, 375e9]]
    )
    # see launches.bursts.CopyRate
    copy_engine_bytes_per_s: Positive | None = Field(
        None,
        description="What the copy engine reaches on the same path, in bytes/s: the most R can be",
        examples=[386e9],
    )
    source: Source = ""

    @property
    def copy_engine_fraction(self) -> float | None:
        """R as a fraction of the copy engine's rate; None where that is not known."""
        return self.bytes_per_s / self.copy_engine_bytes_per_s if self.copy_engine_bytes_per_s else None


class IssuePoint(Strict):
    """T0 of one producer's burst without backpressure (section 3.2)."""

    flavour: Flavour
    producers: Producers
    burst_bytes: BurstBytes
    ns: Positive = Field(
        description="T0: time to issue that burst when nothing holds it up, in ns", examples=[600.0]
    )
    ci95: Interval | None = Field(
        None, description="95% interval of T0, in ns, [low, high]", examples=[[590.0, 610.0]]
    )
    source: Source = ""


class CapacityPoint(Strict):
    """Q(K): bytes that may be outstanding before an isolated burst stalls (equation 7)."""

    flavour: Flavour
    producers: Producers
    bytes: Positive = Field(
        description="Q: bytes of all producers together that may be outstanding", examples=[3_900_000.0]
    )
    ci95: Interval | None = Field(
        None, description="95% interval of Q, in bytes, [low, high]", examples=[[3_800_000.0, 4_000_000.0]]
    )
    # Below ``bytes`` where ports are served unevenly: in between, single producers wait long while the mean
    # producer hardly does.
    onset_bytes: Positive | None = Field(
        None,
        description="The most bytes outstanding at which not even the slowest producer stalled",
        examples=[3_500_000.0],
    )
    knee_reached: StrictBool = Field(
        True, description="Whether a knee was seen: without one, bytes is only a lower bound", examples=[True]
    )
    source: Source = ""


class CapacityLaw(Strict):
    """The law of Q against K that the data support, for one flavour.

    ``constant``: Q = scale_bytes. ``linear``: Q = scale_bytes * K. ``power``: Q = scale_bytes * K**exponent.
    ``saturating``: Q = scale_bytes * (1 - exp(-K / producers_scale)).
    """

    flavour: Flavour
    law: Literal["constant", "linear", "power", "saturating"] = Field(
        description="Form of Q(K): scale_bytes; scale_bytes * K; scale_bytes * K**exponent; or "
        "scale_bytes * (1 - exp(-K / producers_scale))",
        examples=["power"],
    )
    scale_bytes: Positive = Field(description="Scale of the law, in bytes", examples=[300_000.0])
    #: Q(K) is at most K times that of one producer; a fit to noise may be a little steeper.
    exponent: Annotated[Finite, Field(ge=0, le=2)] | None = Field(
        None, description="Exponent of K; law power needs it", examples=[0.53]
    )
    producers_scale: Positive | None = Field(
        None, description="Producers over which Q saturates; law saturating needs it", examples=[30.0]
    )
    rms_relative_error: NonNegative = Field(
        description="Root mean square of the law's relative errors at the points of capacity", examples=[0.03]
    )

    @model_validator(mode="after")
    def _has_its_parameter(self) -> CapacityLaw:
        needed = {"power": "exponent", "saturating": "producers_scale"}.get(self.law)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"law '{self.law}' needs the key '{needed}'")
        return self


class ArbitrationGroup(Strict):
    """SMs that share one port of the arbiter; ``share`` is the group's fraction of R."""

    sm_ids: tuple[Tally, ...] = Field(description="Ids of the SMs behind the port", examples=[[0, 1]])
    share: Fraction = Field(
        description="Part of R that the port gets when all SMs store; those of all ports add up to 1",
        examples=[1.0],
    )
    branch: Tally = Field(0, description="Branch of the arbiter that the port lies on", examples=[0])


class ArbitrationPrediction(Strict):
    """Shares that the group law predicts for K saturating producers, against those measured."""

    producers: Producers
    median_relative_error: NonNegative = Field(
        description="Median over SMs of the relative error of their shares", examples=[0.01]
    )
    max_relative_error: NonNegative = Field(
        description="Largest relative error of an SM's share", examples=[0.05]
    )


class Arbitration(Strict):
    """How R is divided among saturating producers, by SM id.

    A hierarchical round robin. Branches with an active producer share R by weight, the sum of their
    groups' shares; so do, by ``share``, the groups with one inside a branch; the active SMs of a group
    share equally.
    """

    groups: tuple[ArbitrationGroup, ...] = Field(description="Ports of the arbiter, one entry each")
    predictions: tuple[ArbitrationPrediction, ...] = Field(
        (), description="How well these shares predict other sets of producers, one entry a number of them"
    )
    repeat_correlation: Annotated[Finite, Field(ge=-1, le=1)] = Field(
        description="Correlation of SMs' shares between two runs", examples=[0.98]
    )
    max_relative_error: NonNegative | None = Field(
        None,
        description="Largest relative deviation of an SM's measured share from that of its port, all SMs "
        "storing",
        examples=[0.04],
    )
    source: Source = ""

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Arbitration:
        problems = []
        total = sum(group.share for group in self.groups)
        if abs(total - 1.0) > 1e-6:
            problems.append(f"group shares sum to {total:.6f}, not 1")
        ids = [sm for group in self.groups for sm in group.sm_ids]
        if len(ids) != len(set(ids)):
            problems.append("an SM id is in two groups")
        refuse_problems(problems)
        return self


class Corner(Strict):
    """Softening of the corner of equation 3 near G*.

    With a = T0 and b = V/R - G, the plain law is max(a, b); the soft law is
    max(a, b) + width * log1p(exp(-|a - b| / width)), width = width_fraction * V/R.
    """

    width_fraction: Positive = Field(
        description="Width of the softened corner, as a fraction of V/R", examples=[0.05]
    )
    plain_median_pct: NonNegative = Field(
        description="Median error of the law without softening, in percent", examples=[2.0]
    )
    soft_median_pct: NonNegative = Field(
        description="Median error of the softened law, in percent", examples=[1.0]
    )
    plain_p95_pct: NonNegative | None = Field(
        None, description="95th percentile of the errors without softening, in percent", examples=[5.0]
    )
    soft_p95_pct: NonNegative | None = Field(
        None, description="95th percentile of the errors of the softened law, in percent", examples=[3.0]
    )


class Validation(Strict):
    """Relative errors on points that the fit never saw, in percent."""

    period_median_pct: NonNegative = Field(
        description="Median of the errors of predicted periods over the gaps, in percent",
        examples=[2.0],
    )
    period_p95_pct: NonNegative = Field(
        description="95th percentile of the errors of predicted periods over the gaps, in percent",
        examples=[2.0],
    )
    issue_median_pct: NonNegative = Field(
        description="Median of the errors of predicted issue times over the gaps, in percent",
        examples=[2.0],
    )
    issue_p95_pct: NonNegative = Field(
        description="95th percentile of the errors of predicted issue times over the gaps, in percent",
        examples=[2.0],
    )
    isolated_median_pct: NonNegative = Field(
        description="Median of the errors of predicted issue times of isolated bursts, in percent",
        examples=[2.0],
    )
    isolated_p95_pct: NonNegative = Field(
        description="95th percentile of the errors of predicted issue times of isolated bursts, in percent",
        examples=[2.0],
    )
    points: Count = Field(description="Points that were predicted", examples=[300])


class LocalControl(Strict):
    """The same producers storing to their own memory: must not depend on the gap."""

    producers: Producers
    burst_bytes: BurstBytes
    issue_ns: Positive = Field(description="Median time to issue a burst, in ns", examples=[600.0])
    gap_spread: NonNegative = Field(
        description="(max - min) / median of the mean issue time over the gaps", examples=[0.01]
    )


class TensorRate(Strict):
    """Tensor Core rate of the whole GPU for one operand type, dense."""

    dtype: Literal["bf16", "fp8"] = Field(description="Type of the operands", examples=["bf16", "fp8"])
    peak_flop_per_s: Positive = Field(
        description="Dense peak of the GPU, in FLOP/s", examples=[9.89e14, 1.979e15]
    )
    tile_efficiency: Fraction = Field(
        description="Part of the peak that the mainloop of a full tile reaches",
        examples=[0.74],
    )
    source: Source = ""


class SplitTile(Strict):
    """Time of an attention tile whose KV two CTAs share."""

    kv_tile_ns: Positive = Field(
        description="Time of one KV tile (sigma), in ns; neighbouring SMs read others",
        examples=[800.0],
    )
    exchange_ns: NonNegative = Field(
        description="What a Q-loop takes beyond its KV tiles, to merge with the other CTA's, in ns",
        examples=[2800.0],
    )
    staging_ns: NonNegative | None = Field(
        None,
        description="As staging_ns of the whole tile, of the one warpgroup that stages rows in a CTA, in ns; "
        "if left out, that one",
        examples=[230.0],
    )


class AttentionTile(Grown):
    """Time of one KV tile of a Q-loop on one SM: sigma of equation 20."""

    gained = ("split",)

    dtype: Literal["bf16"] = Field(description="Type of Q, K and V", examples=["bf16"])
    block_m: Count = Field(description="Query rows of a tile", examples=[128])
    block_n: Count = Field(description="KV rows that a tile meets at a time", examples=[128])
    head_dim: Count = Field(description="Columns of a head", examples=[128])
    kv_tile_ns: Positive = Field(description="Time of one KV tile (sigma), in ns", examples=[1400.0])
    fixed_ns: NonNegative = Field(
        description="Part of a Q-loop that does not grow with the number of KV tiles, in ns", examples=[0.0]
    )
    staging_ns: NonNegative | None = Field(
        None,
        description="From the Q-loop's end until the tile's rows are staged for their stores, in ns",
        examples=[500.0],
    )
    split: SplitTile | None = Field(None, description="The same tile where two CTAs share its KV")
    source: Source = ""


class Compute(Grown):
    """What turns the shape of a tile into its time, and the limits that a tile must fit."""

    gained = ("origin",)

    tensor: tuple[TensorRate, ...] = Field(
        min_length=1, description="Tensor Core rates, one entry an operand type"
    )
    attention: tuple[AttentionTile, ...] = Field(
        (),
        description="Times of attention tiles, one entry a tile: what an attention is predicted by",
    )
    tile_fill_ns: NonNegative = Field(
        description="Fixed cost of a mainloop beside its FLOPs, the next tile's operands prefetched, in ns",
        examples=[64.0],
    )
    memory_bytes_per_s: Positive = Field(
        description="Bandwidth of the GPU's own memory, in bytes/s", examples=[4.8e12]
    )
    shared_bytes_per_cta: Count = Field(
        description="Shared memory that one CTA may have, in bytes", examples=[232_448]
    )
    registers_per_sm: Count = Field(description="32-bit registers of an SM", examples=[65_536])
    tensor_memory_bytes_per_sm: Tally = Field(
        0,
        description="Accumulator memory of an SM beside its registers (TMEM), in bytes; 0 for none",
        examples=[0],
    )
    origin: ComputeOrigin = Field(
        "measured",
        description="Whether rates and tile times were measured on this GPU, are published ones that others "
        "measured in part, or come from datasheets",
        examples=["datasheet"],
    )
    source: Source = ""

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


#: The source of every number of a template that nobody has changed yet.
TEMPLATE_SOURCE = "example of the template, not measured"


class Provenance(Grown):
    """Where the numbers come from."""

    gained = ("replayed_from",)

    created_at: str = Field(description="Date, or time by ISO 8601", examples=["2026-01-31"])
    tool_version: str = Field(
        description="Version of xstage-tune that measured, or how the numbers came about otherwise",
        examples=["written by hand, not measured"],
    )
    argv: Annotated[tuple[str, ...], AfterValidator(redacted_arguments)] = Field(
        (), description="Command that measured", examples=[["xstage-tune", "calibrate"]]
    )
    host: str = Field("", description="Name of the machine", examples=["node-1"])
    gpu_uuid: str = Field("", description="UUID of the GPU", examples=["GPU-00000000"])
    driver: str = Field("", description="Version of the driver", examples=["580.95"])
    cuda: str = Field("", description="Version of CUDA that compiled the kernels", examples=["13.0"])
    kernel_sha256: str = Field("", description="Hash of the kernels' sources", examples=["0123abcd"])
    seed: Whole | None = Field(None, description="Seed of the order of launches", examples=[0])
    run_id: str = Field("", description="Run in the store", examples=["run-1"])
    replayed_from: str | None = Field(
        None,
        description="Recording that was replayed in place of a measurement of this machine",
        examples=["h200-host"],
    )

    @property
    def simulated(self) -> bool:
        """Whether a simulation was calibrated, in place of a GPU."""
        return self.gpu_uuid.startswith(SIMULATED_UUID)


class PlatformProfile(Grown):
    """One sending GPU and one path, calibrated."""

    gained = ("latencies",)

    schema_version: Literal[1] = Field(
        SCHEMA_VERSION, description="Version of this form of file", examples=[SCHEMA_VERSION]
    )
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")] = Field(
        description="What results call it: lower case letters, digits and . _ -", examples=["my-platform"]
    )
    description: str = Field("", description="One line about it, for lists", examples=["My node"])
    path: StorePath = Field(
        description="Whose memory is stored to: another GPU's (peer), pinned host memory (host), or its "
        "own (local)",
        examples=["peer"],
    )
    gpu: Gpu = Field(description="The GPU that stores")
    drain: Drain = Field(description="R: how fast stores leave the GPU")
    issue: tuple[IssuePoint, ...] = Field(
        min_length=1, description="T0: issue times without backpressure, one entry a flavour, K and B"
    )
    capacity: tuple[CapacityPoint, ...] = Field(
        (), description="Q: bytes that may be outstanding, one entry a flavour and K"
    )
    capacity_law: tuple[CapacityLaw, ...] = Field(
        (),
        description="How Q grows with K, one entry a flavour",
    )
    arbitration: Arbitration | None = Field(None, description="How R is divided among SMs")
    corner: Corner | None = Field(None, description="How the law of the period is softened near G*")
    validation: Validation | None = Field(None, description="Errors on points that the fit never saw")
    local_control: LocalControl | None = Field(
        None, description="The same bursts into the GPU's own memory, as a control"
    )
    compute: Compute | None = Field(
        None, description="Rates and limits of the GPU's SMs; audit, search and emulate need them"
    )
    latencies: Latencies | None = Field(
        None, description="Latencies between roles and GPUs; without them those of one H200 are assumed"
    )
    provenance: Provenance = Field(description="Who measured the numbers, when and with what")

    def figures(self) -> PlatformProfile:
        """The profile without what tells its GPU from others: two of equal figures give equal results.

        Studies and recordings know a profile by these. Some that are marked ``published`` were not before;
        latencies that are those of a profile without them were no keys.
        """
        changed: dict[str, object] = {"gpu": self.gpu.model_copy(update=dict.fromkeys(Gpu.gained))}
        if self.compute is not None and self.compute.origin == "published":
            changed["compute"] = self.compute.model_copy(update={"origin": "measured"})
        if self.latencies is not None and self.latencies.same_times(FALLBACK):
            changed["latencies"] = None
        return self.model_copy(update=changed)

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
        InconsistentError: two of a table have the same names.
    """
    refuse_problems(
        f"{table} has two entries for {next(name for name in names if names.count(name) > 1)}"
        for table, names in entries.items()
        if len(names) != len(set(names))
    )
