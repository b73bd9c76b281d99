"""Expected time of an attention config: equations 7, 18 and 19 per output tile."""

from __future__ import annotations

from xstage_tune.families.attention_a2a.load import AttentionLoad
from xstage_tune.families.prediction import Prediction
from xstage_tune.model.burst_gap import isolated_issue_ns, issue_ns


def predict_attention(load: AttentionLoad) -> Prediction:
    """Expected time of a launch: rounds of aligned bursts, the last of which drains behind all Q-loops.

    A burst stalls the next Q-loop by what its cover leaves of T_RS, or by the operands that wait behind it.
    Paced stores stall it by what a Q-loop is too short to drain.
    """
    if load.paced:
        exposed_ns = max(0.0, load.drain_tile_ns - load.q_loop_ns)
    else:
        exposed_ns = max(0.0, _burst_span_ns(load) - load.cover_ns, load.operand_wait_ns)
    stall_ns = (load.rounds - 1) * exposed_ns
    last_ns = load.staging_ns + max(load.free_issue_ns, load.last_drain_ns)
    return Prediction(load.mainloop_ns + stall_ns + last_ns, stall_ns)


def _burst_span_ns(load: AttentionLoad) -> float:
    """T_RS of a round's bursts: staging, and equation 3 or 7, whichever is more."""
    drain_bytes_per_s = load.drain_bytes_per_ns * 1e9
    alone_ns = isolated_issue_ns(
        free_issue_ns=load.free_issue_ns,
        volume_bytes=load.burst_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
        capacity_bytes=load.capacity_bytes,
    )
    steady_ns = issue_ns(
        gap_ns=load.q_loop_ns,
        free_issue_ns=load.free_issue_ns,
        volume_bytes=load.burst_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
    )
    return load.staging_ns + max(float(alone_ns), float(steady_ns))
