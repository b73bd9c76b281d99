"""Lower bounds on an attention launch that hold for every tile order."""

from __future__ import annotations

from xstage_tune.families.attention_a2a.load import AttentionLoad
from xstage_tune.families.floors import Floors


def attention_floors(load: AttentionLoad) -> Floors:
    """Floors of an attention launch; operands from memory are in the measured time of a KV tile."""
    leaving = load.remote_bytes / load.drain_bytes_per_ns
    return Floors(
        compute_ns=load.mainloop_ns + load.least_staging_ns,
        issue_ns=load.q_loop_ns + load.rounds * load.least_staging_ns,
        drain_ns=load.q_loop_ns + load.least_staging_ns + leaving if leaving else 0.0,
    )
