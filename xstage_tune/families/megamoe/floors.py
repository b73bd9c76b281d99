"""Lower bounds on a MegaMoE launch that hold for every schedule."""

from __future__ import annotations

from xstage_tune.families.floors import Floors
from xstage_tune.families.megamoe.load import MoeLoad
from xstage_tune.model.locality import load_ns


def moe_floors(load: MoeLoad) -> Floors:
    """Floors of a MegaMoE launch.

    - compute: the busiest SM has at least the mean of the mainloops, and its last tile must be stored. Where
      one slot serves all tiles, mainloops and stores alternate.
    - issue: likewise for the issue role, which begins after a mainloop.
    - drain: no Combine byte leaves before one tile of either layer is computed, and a kernel ends when the
      last one has arrived.
    - memory: the SM with most tiles sees every step, and each weight tile is loaded in some step.
    """
    if not load.total_rows:
        return Floors(0.0, 0.0, 0.0)
    first, last = load.linear1, load.linear2
    stores_ns = min(first.least_issue_ns, last.least_issue_ns)
    shared_slot_ns = load.mainloop_ns + load.issue_ns if load.serial else 0.0
    leaving_ns = load.drained_ns(load.remote_bytes)
    return Floors(
        compute_ns=max(load.mainloop_ns + stores_ns, shared_slot_ns),
        issue_ns=load.issue_ns + min(first.least_ns, last.least_ns),
        drain_ns=leaving_ns + first.least_ns + last.least_ns if leaving_ns else 0.0,
        memory_ns=float(load_ns(loaded_bytes=load.weight_bytes, memory_bytes_per_s=load.memory_bytes_per_s)),
    )
