"""The audit of FlashAttention with a fused All-to-All: the Q-loop gap, equations 17 to 21."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xstage_tune.base.number_format import duration, percent
from xstage_tune.estimates.bursts import BurstTerms, burst_terms
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.estimates.schedule import (
    SchedulePrediction,
    completion_coupled,
    hiding,
    in_steady_state,
    issue_at,
    overhead,
    serial_drain,
    total,
    visibility_latency,
)
from xstage_tune.families.attention_a2a.budget import staged_rows
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.estimate_times import QLoopTimes, q_loop_times
from xstage_tune.families.attention_a2a.launch import attention_grid, last_round_remote_bytes
from xstage_tune.families.attention_a2a.tile_times import paced_part_of_q_loop
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.estimate import Arrival, Estimate, Quantity
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.model import attention
from xstage_tune.model.burst_gap import drain_ns, injection_bytes_per_s
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class AttentionEstimate(Estimate):
    """An attention's burst, Q-loop, M*_ub and what issuing from the output's own role does."""

    burst: BurstTerms
    times: QLoopTimes
    converged_tokens: Figure  # M*_ub, equation 20
    predicted: SchedulePrediction  # on the sender: until its last store is issued
    arrival: Arrival
    rounds: int  # output tiles of the busiest CTA
    hands_stores_over: bool  # a role that computes goes on when its rows are staged

    @property
    def schedules(self) -> Mapping[str, SchedulePrediction]:
        """The one that there is: the role that owns the output issues its stores."""
        return {"piggyback": self.predicted}

    @property
    def audited(self) -> str:
        """The one that there is."""
        return "piggyback"

    @property
    def until_arrived(self) -> Arrival:
        """The predictions end when the last store is issued."""
        return self.arrival

    def quantities(self) -> Mapping[str, Quantity]:
        """Sigma, M*_ub, and what is exposed until all stores have arrived."""
        arrival = self.arrival

        def share(value: float) -> str:
            return percent(100 * value, 1)

        return {
            "kv_tile_ns": Quantity(self.times.kv_tile_ns, "KV tile, sigma", duration),
            "converged_tokens": Quantity(
                self.converged_tokens,
                "a Q-loop drains a round from, M*_ub",
                lambda tokens: f"{tokens:,.0f} tokens",
            ),
            "last_drain_ns": Quantity(arrival.last_drain_ns, "drain of the last round", duration),
            "arrived_residual_ns": Quantity(arrival.residual_ns, "residual until arrived, E_res", duration),
            "arrived_hiding_ratio": Quantity(arrival.hiding_ratio, "of it, hiding ratio H", share),
        }

    def notes(self) -> Iterator[str]:
        """What the predictions leave out: the kernel ends when its stores have arrived."""
        arrival = self.arrival
        yield (
            "on the sender: until its last store is issued; until all have arrived E_res is "
            f"{duration(arrival.residual_ns.value)} and H {percent(100 * arrival.hiding_ratio.value, 1)}, "
            f"since no Q-loop hides the last round's drain of {duration(arrival.last_drain_ns.value)}; "
            f"completion-coupled {duration(arrival.completion_coupled_residual_ns.value)}"
        )
        if self.hands_stores_over:
            yield "T_RS: what the role that computes spends on handing a tile over; others store it, in T_iss"


def estimate_attention(
    workload: AttentionWorkload, platform: PlatformProfile, config: AttentionConfig, *, paced: bool = True
) -> AttentionEstimate:
    """Audit one config, with all its producers aligned: the paper's conservative case.

    Every burst has the mean of the remote bytes; the tile order plays a part in the last round alone.

    Args:
        paced: whether stores are spread over the next Q-loop where the config's kernel does that.

    Raises:
        UsageError: the platform lacks what the audit needs.
    """
    grid = attention_grid(config, workload, platform)
    times = q_loop_times(workload, platform, config)
    gap = times.q_loop_ns
    burst = burst_terms(platform, config.store_flavour, grid.ctas, _output_tile(workload, config))
    if paced and config.paces_stores:
        burst = burst.paced(gap, paced_part_of_q_loop(workload.head_dim))
    converged = attention.converged_tokens(
        recovery_gap_ns=burst.recovery_gap_ns.value,
        block_n=config.block_n,
        kv_tile_ns=times.kv_tile_ns.value,
        kv_splits=config.kv_splits,
        exchange_ns=times.exchange_ns.value,
    )
    words, parts = "equation 20, b_n*G*/sigma", [burst.recovery_gap_ns, times.kv_tile_ns]
    if config.kv_splits > 1:
        words = f"equation 20, {config.kv_splits}*b_n*(G* - exchange)/sigma"
        parts.append(times.exchange_ns)
    predict = _predict_handed_over if config.hands_stores_over else _predict_own
    predicted = predict(workload, burst, times, gap, grid.rounds)
    return AttentionEstimate(
        burst=burst,
        times=times,
        converged_tokens=derived(float(converged), words, *parts),
        predicted=predicted,
        arrival=_arrival(workload, platform, config, burst, predicted, grid.rounds),
        rounds=grid.rounds,
        hands_stores_over=config.hands_stores_over,
    )


def _arrival(
    workload: AttentionWorkload,
    platform: PlatformProfile,
    config: AttentionConfig,
    burst: BurstTerms,
    predicted: SchedulePrediction,
    rounds: int,
) -> Arrival:
    """E_res of the rounds before the last; of the last, the longer of its exposure and its drain.

    A burst drains while it is issued, so the two do not add.
    """
    last_bytes = last_round_remote_bytes(config, workload, platform)
    rate = burst.drain_bytes_per_s
    last_drain = derived(
        float(drain_ns(volume_bytes=last_bytes, drain_bytes_per_s=rate.value)),
        f"equation 1 for the {last_bytes / 2**20:.2f} MiB that the last round stores remotely",
        rate,
    )

    def until_arrived(residual: Figure, last: Figure, last_words: str) -> Figure:
        of_round_ns = residual.value / rounds
        value = residual.value - of_round_ns + max(of_round_ns, last.value)
        before = f"the residual of {rounds - 1:,} of {rounds:,} rounds, and " if rounds > 1 else ""
        words = f"{before}the last round's {last_words}"
        if last.value <= of_round_ns:
            words = f"the residual, in which the last round's {last_words} has passed"
        return derived(value, words, residual, last)

    residual = until_arrived(predicted.residual_ns, last_drain, "drain")
    serial = serial_drain(burst, workload.remote_bytes)
    hidden = attention.hiding_ratio(fused_ns=residual.value, attention_ns=0.0, serial_ns=serial.value)
    latency = visibility_latency(burst.platform)
    last_visible = derived(last_drain.value + latency.value, "V/R + T_lat", last_drain, latency)
    return Arrival(
        last_drain_ns=last_drain,
        residual_ns=residual,
        hiding_ratio=derived(float(hidden), "equation 21, serial transfer at R", residual, serial),
        completion_coupled_residual_ns=until_arrived(
            predicted.completion_coupled.residual_ns, last_visible, "V/R + T_lat"
        ),
        mainloops_ns=rounds * predicted.gap_ns.value,
    )


def _predict_own(
    workload: AttentionWorkload, burst: BurstTerms, times: QLoopTimes, gap: Figure, bursts: int
) -> SchedulePrediction:
    """The role that computes issues the burst too."""
    issue = issue_at(burst, gap)
    added = overhead(burst, issue)
    stall_ns = attention.critical_path_overhead_ns(overhead_ns=added.value, cover_ns=times.cover_ns.value)
    stall = derived(float(stall_ns), "equation 19, dT_iss - G_QK", added, times.cover_ns)
    exposed = derived(
        burst.free_issue_ns.value + stall.value, "T0 + stall: the role computes too", stall, issue
    )
    return in_steady_state(
        burst,
        gap,
        times.cover_ns,
        span=issue,
        stall=stall,
        exposed=exposed,
        bursts=bursts,
        total_bytes=workload.remote_bytes,
    )


def _predict_handed_over(
    workload: AttentionWorkload, burst: BurstTerms, times: QLoopTimes, gap: Figure, bursts: int
) -> SchedulePrediction:
    """Others store what the role that computes has staged: it waits where a Q-loop is too short for that."""
    issue = issue_at(burst, gap)
    stall = derived(
        max(0.0, issue.value - gap.value, burst.drain_ns.value - gap.value),
        "what T_iss and V/R exceed the Q-loop by",
        issue,
        gap,
    )
    cover = derived(gap.value, "the whole Q-loop: the output has buffers of its own", gap)
    asked = injection_bytes_per_s(gap_ns=gap.value, free_issue_ns=0.0, volume_bytes=burst.volume_bytes.value)
    serial_drain_ns = serial_drain(burst, workload.remote_bytes)
    residual = total(bursts, stall)
    return SchedulePrediction(
        gap_ns=gap,
        rate_ok=burst.rate_ok(gap.value),
        injection_bytes_per_s=derived(float(asked), "V / G", burst.volume_bytes, gap),
        issue_ns=issue,
        issue_overhead_ns=derived(0.0, "others store", issue),
        span_ns=times.staging_ns,
        stall_ns=stall,
        residual_ns=residual,
        hiding_ratio=hiding(burst, residual, serial_drain_ns),
        completion_coupled=completion_coupled(
            burst,
            gap,
            cover,
            least_exposed=stall,
            bursts=bursts,
            serial_drain_ns=serial_drain_ns,
            beside=True,
        ),
    )


def _output_tile(workload: AttentionWorkload, config: AttentionConfig) -> Figure:
    """B: the remote part of what a CTA stores of one output tile."""
    rows = min(staged_rows(config), workload.tokens)
    whole = attention.output_tile_bytes(block_m=rows, head_dim=workload.head_dim, element_bytes=OUTPUT_BYTES)
    fraction = workload.output_remote_fraction
    tile = "tile" if config.kv_splits == 1 else f"of a tile that {config.kv_splits} CTAs share"
    origin = f"{rows} x {workload.head_dim} {workload.dtype} {tile}, {fraction:.1%} of it remote"
    return Figure(float(whole) * fraction, Basis.DERIVED, origin)
