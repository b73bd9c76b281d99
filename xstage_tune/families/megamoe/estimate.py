"""The audit of a MoE layer: wave and interleaved gaps, equations 11 to 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from xstage_tune.base.number_format import duration, percent
from xstage_tune.estimates.bursts import BurstTerms, burst_terms
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.estimates.schedule import (
    SchedulePrediction,
    in_steady_state,
    issue_at,
)
from xstage_tune.families.architecture import architecture_of
from xstage_tune.families.estimate import Estimate, Quantity
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.defaults import usual_lead_rows
from xstage_tune.families.megamoe.estimate_times import MoeTimes, moe_times
from xstage_tune.families.megamoe.routing import busiest_tokens
from xstage_tune.families.megamoe.tiling import linear_tiles
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.model import moe
from xstage_tune.platforms.schema import PlatformProfile

#: The interleaved schedule with a lead below D_knee, as ``predicted`` names it.
SHORT_LEAD = "interleaved-short-lead"


@dataclass(frozen=True, slots=True)
class MoeEstimate(Estimate):
    """A layer's burst, tile times, D_knee and what each schedule does with them."""

    burst: BurstTerms
    times: MoeTimes
    lead_knee_rows: Figure  # equation 16
    lead_rows: Figure  # D to run with
    schedule: str  # the audited one of ``predicted``
    predicted: dict[str, SchedulePrediction]  # by schedule kind, or SHORT_LEAD
    parts: dict[str, float]  # of its bursts, in sum 1, by the one of ``predicted`` that tells of them

    lead: int | None = None  # of the config, where its schedule has one

    @property
    def schedules(self) -> Mapping[str, SchedulePrediction]:
        """The wave and the interleaved one, and that of a short lead."""
        return self.predicted

    @property
    def audited(self) -> str:
        """The config's own schedule."""
        return self.schedule

    @property
    def parts_of_bursts(self) -> Mapping[str, float]:
        """Bursts for which no Linear-1 tile is left are those of another schedule."""
        return self.parts

    @property
    def starved(self) -> bool:
        """The audited lead is below D_knee, so that Linear-2 catches up with Linear-1."""
        return self.schedule == SHORT_LEAD

    def quantities(self) -> Mapping[str, Quantity]:
        """Both mainloops, and the leads of equation 16."""
        return {
            "l1_mainloop_ns": Quantity(self.times.l1_ns, "Linear-1 mainloop, T_L1", duration),
            "l2_mainloop_ns": Quantity(self.times.l2_ns, "Linear-2 mainloop, T_L2", duration),
            "d_knee_rows": Quantity(self.lead_knee_rows, "least lead, D_knee", lambda r: f"{r:.1f} rows"),
            "lead_rows": Quantity(self.lead_rows, "lead to run with, D", lambda rows: f"{rows:.0f} rows"),
        }

    def remarks(self) -> Iterator[tuple[str, str]]:
        """Why an interleaved layer is audited by the wave's gap."""
        if self.starved:
            yield (
                "lead",
                f"D = {self.lead} is below D_knee = {self.lead_knee_rows.value:.1f}: Linear-2 catches up "
                "with Linear-1 and its bursts re-concentrate, so that G is the wave's",
            )

    def footnotes(self) -> Iterator[str]:
        """Bursts of the audited schedule that another schedule's column tells of."""
        for name, part in self.parts.items():
            if name != self.schedule:
                yield (
                    f"{self.schedule}: {percent(100 * part, 1)} of its bursts come when no Linear-1 tile is "
                    f"left; for them see {name}"
                )


@dataclass(frozen=True, slots=True)
class _Rank:
    """The busiest rank's rows, which set the layer's time."""

    tokens: int
    rows: int
    active_experts: int
    most_tokens: int  # of one expert

    @classmethod
    def of(cls, layer: MoeWorkload, block_m: int) -> _Rank:
        tokens = busiest_tokens(layer)
        return cls(
            tokens=int(tokens.sum()),
            rows=int((-(-tokens // block_m)).sum()),
            active_experts=int((tokens > 0).sum()),
            most_tokens=int(tokens.max()),
        )


def estimate_moe(
    layer: MoeWorkload, platform: PlatformProfile, config: MegaMoeConfig, times: MoeTimes | None = None
) -> MoeEstimate:
    """Audit one config of a layer; the wave and the interleaved schedule are always among the predicted.

    The interleaved one is that of a sufficient lead. Below D_knee (equation 16) Linear-2 catches up and its
    bursts re-concentrate: such a config is predicted as SHORT_LEAD, with the wave's gap.

    Args:
        times: tile times where they are known; None derives them from the platform's compute section.

    Raises:
        UsageError: the platform lacks what the audit needs.
    """
    rank = _Rank.of(layer, config.block_m)
    l1_tiles, l2_tiles = (one.count for one in linear_tiles(config, layer, architecture_of(platform)))
    tile_tokens = min(config.block_m, rank.most_tokens)
    producers = min(_sms(platform), rank.rows * l2_tiles)
    burst = burst_terms(platform, config.store_flavour, producers, _combine_tile(layer, tile_tokens, config))
    times = times or moe_times(
        layer, platform, config, tile_tokens=tile_tokens, rows_per_expert=rank.rows / rank.active_experts
    )
    bursts = ceil(rank.rows * l2_tiles / producers)
    remote_bytes = rank.tokens * layer.hidden * OUTPUT_BYTES * layer.combine_remote_fraction
    knee_rows = _knee_rows(layer, config, _sms(platform))
    schedule = _schedule_name(config, knee_rows)
    return MoeEstimate(
        burst=burst,
        times=times,
        lead_knee_rows=Figure(knee_rows, Basis.DERIVED, "equation 16, b_n*K_SM / (2*h_inter)"),
        lead_rows=Figure(
            usual_lead_rows(config, layer, _sms(platform)),
            Basis.DERIVED,
            "two D_knee, and a margin of h_inter/h",
        ),
        schedule=schedule,
        parts=_parts(schedule, l1_tiles, l2_tiles),
        predicted={
            name: _predict(burst, times, _cycle(name, l1_tiles, l2_tiles), bursts, remote_bytes)
            for name in dict.fromkeys(("wave", "interleaved", schedule))
        },
        lead=config.schedule.lead_rows,
    )


def _knee_rows(layer: MoeWorkload, config: MegaMoeConfig, sms: int) -> float:
    return float(moe.lead_knee_rows(block_n=config.block_n, producers=sms, intermediate=layer.intermediate))


def _schedule_name(config: MegaMoeConfig, knee_rows: float) -> str:
    lead_rows = config.schedule.lead_rows
    return SHORT_LEAD if lead_rows is not None and lead_rows < knee_rows else config.schedule.kind


def _cycle(schedule: str, l1_tiles: int, l2_tiles: int) -> tuple[int, int]:
    """(n1, n2) of the cycle that a run of Linear-2 tiles repeats.

    The clamped lag merges units of several rows, so within a unit its Linear-2 tiles follow each other as
    under the wave schedule; 1:1 alternation inserts one Linear-1 tile until these are exhausted.
    """
    cycles = {"wave": (0, 1), "clamped-lag": (0, 1), SHORT_LEAD: (0, 1), "alternating": (1, 1)}
    return cycles.get(schedule, (l1_tiles, l2_tiles))


def _parts(schedule: str, l1_tiles: int, l2_tiles: int) -> dict[str, float]:
    """``MoeEstimate.parts``: 1:1 alternation that runs out of Linear-1 tiles goes on as a wave does."""
    paired = min(1.0, l1_tiles / l2_tiles) if schedule == "alternating" else 1.0
    return {schedule: paired} | ({"wave": 1.0 - paired} if paired < 1.0 else {})


def _predict(
    burst: BurstTerms, times: MoeTimes, cycle: tuple[int, int], bursts: int, total_bytes: float
) -> SchedulePrediction:
    gap = _gap(times, cycle)
    rate_ok = burst.rate_ok(gap.value)
    after_l1 = min(1.0, cycle[0] / cycle[1])  # part of the Linear-2 tiles that a Linear-1 tile follows
    cover = derived(
        after_l1 * times.l1_ns.value + (1 - after_l1) * times.l2_ns.value, "the next mainloop", gap
    )
    span = _span(burst, gap, cover, rate_ok)
    stall_ns = after_l1 * _stall_ns(span, times.l1_ns) + (1 - after_l1) * _stall_ns(span, times.l2_ns)
    if not rate_ok:
        # Drain-limited, G and the stalls of a period come to V/R (equation 11).
        stall_ns = min(stall_ns, burst.drain_ns.value - gap.value)
    stall = derived(stall_ns, "equation 15, T_RS - T_cover", span, cover)
    return in_steady_state(burst, gap, cover, span=span, stall=stall, bursts=bursts, total_bytes=total_bytes)


def _gap(times: MoeTimes, cycle: tuple[int, int]) -> Figure:
    """Equation 12."""
    n1, n2 = cycle
    value = moe.interleaved_gap_ns(
        l1_mainloop_ns=times.l1_ns.value, l2_mainloop_ns=times.l2_ns.value, l1_tiles=n1, l2_tiles=n2
    )
    if not n1:
        return derived(float(value), "equation 12, T_L2", times.l2_ns)
    return derived(float(value), f"equation 12, T_L2 + {n1}/{n2} T_L1", times.l2_ns, times.l1_ns)


def _span(burst: BurstTerms, gap: Figure, cover: Figure, rate_ok: bool) -> Figure:
    """T_RS of a separate issue role, without the fixed cost of its staging copy.

    While the path drains between bursts, that of an isolated burst. Drain-limited, tiles wait in staging
    and the role rests only for the part of the gap that staging does not cover.
    """
    if rate_ok:
        return issue_at(burst, gap)
    rest = derived(max(0.0, gap.value - cover.value), "G - T_cover", gap, cover)
    return issue_at(burst, rest)


def _stall_ns(span: Figure, cover: Figure) -> float:
    return float(moe.critical_path_stall_ns(span_ns=span.value, cover_ns=cover.value))


def _combine_tile(layer: MoeWorkload, tile_tokens: int, config: MegaMoeConfig) -> Figure:
    """B: the remote part of one Linear-2 tile."""
    value = tile_tokens * config.block_n * OUTPUT_BYTES * layer.combine_remote_fraction
    origin = f"{tile_tokens} x {config.block_n} bf16 tile, {layer.combine_remote_fraction:.1%} of it remote"
    return Figure(value, Basis.DERIVED, origin)


def _sms(platform: PlatformProfile) -> int:
    """K_SM: SMs that take part, whole groups of CTAs."""
    group = architecture_of(platform).cta_group
    return platform.gpu.sm_count // group * group
