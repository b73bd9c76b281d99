"""Expected time of an attention config: equations 7, 18 and 19 per output tile."""

from __future__ import annotations

from xstage_tune.model.burst_gap import isolated_issue_ns, issue_ns
from xstage_tune.search.attention_load import AttentionLoad
from xstage_tune.search.prediction import Prediction


def predict_attention(load: AttentionLoad) -> Prediction:
    """Expected time of a launch: aligned bursts, each exposed by what its cover leaves."""
    volume = load.drain_tile_ns * load.drain_bytes_per_ns
    rate = load.drain_bytes_per_ns * 1e9
    alone_ns = float(
        isolated_issue_ns(
            free_issue_ns=load.free_issue_ns,
            volume_bytes=volume,
            drain_bytes_per_s=rate,
            capacity_bytes=load.capacity_bytes,
        )
    )
    steady_ns = float(
        issue_ns(
            gap_ns=load.q_loop_ns,
            free_issue_ns=load.free_issue_ns,
            volume_bytes=volume,
            drain_bytes_per_s=rate,
        )
    )
    span_ns = load.staging_ns + max(alone_ns, steady_ns)
    exposed_ns = max(0.0, span_ns - load.cover_ns)
    stall_ns = (load.rounds - 1) * exposed_ns
    return Prediction(load.mainloop_ns + stall_ns + span_ns, stall_ns)
