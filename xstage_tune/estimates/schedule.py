"""What one schedule does to the issuing role and to the Tensor Cores, in the steady state.

A real run of tiles is finite, starts on a drained path, and its CTAs drift apart, which stalls it less; its
loads and local stores wait behind remote ones, which stalls it more. The simulator gives the number.
"""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.model import attention, burst_gap
from xstage_tune.platforms.latencies import latencies_of
from xstage_tune.platforms.schema import PlatformProfile


def visibility_latency(platform: PlatformProfile) -> Figure:
    """T_lat of equation 17, ns."""
    latency = latencies_of(platform).visibility
    basis = Basis.MEASURED if latency.origin == "measured" else Basis.ASSUMED
    return Figure(latency.ns, basis, latency.source)


@dataclass(frozen=True, slots=True)
class CompletionCoupled:
    """The counterfactual: an issuer that waits until its stores are visible.

    The latency of visibility is the simulator's too: no calibration measures it.
    """

    period_ns: Figure  # G + V/R + T_lat, or the longer of G and the rest, for an issuer beside who computes
    stall_ns: Figure  # equation 17
    residual_ns: Figure  # N_t of them: the last burst's counts, though no mainloop waits for it
    hiding_ratio: Figure | None


@dataclass(frozen=True, slots=True)
class SchedulePrediction:
    """One schedule. ``rate_ok`` is the rate bound of equation 10, for MoE interleaving equation 14."""

    gap_ns: Figure  # G
    rate_ok: bool
    injection_bytes_per_s: Figure  # V / (T0 + G), or V / G where others store
    issue_ns: Figure  # T_iss of a role that spends the gap on its own work
    issue_overhead_ns: Figure  # dT_iss = T_iss - T0; 0 where others store
    span_ns: Figure  # T_RS of the role that issues here; where others store, what staging takes
    stall_ns: Figure  # dt of the Tensor Cores for each burst
    residual_ns: Figure  # over all bursts of the busiest SM
    hiding_ratio: Figure | None  # equation 21, against a serial transfer of the same bytes at R
    completion_coupled: CompletionCoupled


def in_steady_state(
    burst: BurstTerms,
    gap: Figure,
    cover: Figure,
    *,
    span: Figure,
    stall: Figure,
    exposed: Figure | None = None,
    bursts: int,
    total_bytes: float,
) -> SchedulePrediction:
    """A role that issues a burst in every gap, ``bursts`` times.

    Args:
        cover: what of the gap the next tile computes before it needs what this one holds.
        span: T_RS, until the role is free again.
        stall: what of that the Tensor Cores wait for.
        exposed: what each burst adds to the launch; by default the stall.
        total_bytes: that leave the rank.
    """
    issue = issue_at(burst, gap)
    least_exposed = stall if exposed is None else exposed
    serial_drain_ns = serial_drain(burst, total_bytes)
    residual = total(bursts, least_exposed)
    return SchedulePrediction(
        gap_ns=gap,
        rate_ok=burst.rate_ok(gap.value),
        injection_bytes_per_s=injection(burst, gap),
        issue_ns=issue,
        issue_overhead_ns=overhead(burst, issue),
        span_ns=span,
        stall_ns=stall,
        residual_ns=residual,
        hiding_ratio=hiding(burst, residual, serial_drain_ns),
        completion_coupled=completion_coupled(
            burst, gap, cover, least_exposed=least_exposed, bursts=bursts, serial_drain_ns=serial_drain_ns
        ),
    )


def injection(burst: BurstTerms, gap: Figure) -> Figure:
    """What the schedule asks of the path: the left side of the rate bound."""
    value = burst_gap.injection_bytes_per_s(
        gap_ns=gap.value, free_issue_ns=burst.free_issue_ns.value, volume_bytes=burst.volume_bytes.value
    )
    return derived(float(value), "V / (T0 + G)", burst.volume_bytes, burst.free_issue_ns, gap)


def issue_at(burst: BurstTerms, gap: Figure) -> Figure:
    """T_iss by the Burst-Gap law, at least that of an isolated burst beyond the capacity."""
    periodic = float(
        burst_gap.issue_ns(
            gap_ns=gap.value,
            free_issue_ns=burst.free_issue_ns.value,
            volume_bytes=burst.volume_bytes.value,
            drain_bytes_per_s=burst.drain_bytes_per_s.value,
        )
    )
    isolated = burst.isolated_issue_ns
    if isolated > periodic:
        return derived(isolated, "equation 7, (V - Q)/R", burst.volume_bytes, burst.capacity_bytes)
    return derived(periodic, "equation 3, max(T0, V/R - G)", burst.volume_bytes, burst.free_issue_ns, gap)


def overhead(burst: BurstTerms, issue: Figure) -> Figure:
    """dT_iss: what backpressure adds to T0."""
    return derived(issue.value - burst.free_issue_ns.value, "T_iss - T0", issue, burst.free_issue_ns)


def hiding(burst: BurstTerms, residual: Figure, serial_drain_ns: Figure) -> Figure | None:
    """Equation 21, where the serial time exposes the drain of all bytes at R after the compute.

    None where a burst drains in less than T0: the drain then is not what a transfer takes, and hides nothing.
    """
    if burst.drain_ns.value < burst.free_issue_ns.value:
        return None
    value = attention.hiding_ratio(fused_ns=residual.value, attention_ns=0.0, serial_ns=serial_drain_ns.value)
    return derived(float(value), "equation 21, serial transfer at R", residual, serial_drain_ns)


def serial_drain(burst: BurstTerms, total_bytes: float) -> Figure:
    """Time of all remote bytes of the busiest rank at R."""
    value = burst_gap.drain_ns(volume_bytes=total_bytes, drain_bytes_per_s=burst.drain_bytes_per_s.value)
    return derived(float(value), "all remote bytes over R", burst.burst_bytes)


def completion_coupled(
    burst: BurstTerms,
    gap: Figure,
    cover: Figure,
    *,
    least_exposed: Figure,
    bursts: int,
    serial_drain_ns: Figure,
    beside: bool = False,
) -> CompletionCoupled:
    """The counterfactual at a gap, where local staging covers ``cover``.

    It exposes at least what the decoupled issuer exposes for each burst, ``least_exposed``. ``beside``: the
    issuer waits beside the role that computes, which goes on.
    """
    volume, rate = burst.volume_bytes.value, burst.drain_bytes_per_s.value
    visible, latency = visible_after(burst), visibility_latency(burst.platform)
    if beside:
        period = derived(max(gap.value, visible.value), "max(G, V/R + T_lat)", gap, visible)
    else:
        period_ns = burst_gap.completion_coupled_period_ns(
            gap_ns=gap.value, volume_bytes=volume, drain_bytes_per_s=rate
        )
        period = derived(float(period_ns) + latency.value, "G + V/R + T_lat", gap, visible)
    stall_ns = attention.completion_coupled_exposure_ns(
        volume_bytes=volume,
        drain_bytes_per_s=rate,
        latency_ns=latency.value,
        cover_ns=cover.value,
    )
    stall = derived(float(stall_ns), "equation 17, V/R + T_lat - T_cover", visible, cover)
    stall = max(stall, least_exposed, key=float)
    residual = total(bursts, stall)
    return CompletionCoupled(
        period_ns=period,
        stall_ns=stall,
        residual_ns=residual,
        hiding_ratio=hiding(burst, residual, serial_drain_ns),
    )


def visible_after(burst: BurstTerms) -> Figure:
    """V/R + T_lat of equation 17, ns: from a burst's first store until its last one is visible."""
    latency = visibility_latency(burst.platform)
    return derived(burst.drain_ns.value + latency.value, "V/R + T_lat", burst.drain_ns, latency)


def total(bursts: int, exposure: Figure) -> Figure:
    """An exposure over all bursts of the busiest SM."""
    value = attention.total_exposure_ns(output_bursts=bursts, exposure_ns=exposure.value)
    return derived(float(value), f"{bursts:,} bursts of the busiest SM", exposure)
