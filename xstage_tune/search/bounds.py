"""Lower bounds on a config's time that hold for every schedule and tile order.

Each floor says what one resource needs at the very least. They bound what the simulator can return, so
cutting configs whose bound is no better than a measured time never removes the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.search.attention_load import AttentionLoad
from xstage_tune.search.moe_load import MoeLoad


@dataclass(frozen=True, slots=True)
class Floors:
    """Time that each resource needs, ns.

    Args:
        compute_ns: Tensor Cores of the SMs, and the stores of the last tile.
        issue_ns: the issue roles, behind the first mainloop.
        drain_ns: V_total/R, behind the first tile that stores.
        memory_ns: weights from memory.
    """

    compute_ns: float
    issue_ns: float
    drain_ns: float
    memory_ns: float = 0.0

    @property
    def latency_ns(self) -> float:
        """The bound: the largest floor."""
        return max(self.compute_ns, self.issue_ns, self.drain_ns, self.memory_ns)

    @property
    def binding(self) -> str:
        """Which floor that is."""
        floors = {
            "compute": self.compute_ns,
            "issue": self.issue_ns,
            "drain": self.drain_ns,
            "memory": self.memory_ns,
        }
        return max(floors, key=lambda name: floors[name])


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
    leaving = load.remote_bytes / load.drain_bytes_per_ns
    return Floors(
        compute_ns=max(load.mainloop_ns + stores_ns, shared_slot_ns),
        issue_ns=load.issue_ns + min(first.least_ns, last.least_ns),
        drain_ns=leaving + first.least_ns + last.least_ns if leaving else 0.0,
        memory_ns=load.weight_bytes / load.memory_bytes_per_ns,
    )


def attention_floors(load: AttentionLoad) -> Floors:
    """Floors of an attention launch; operands from memory are in the measured time of a KV tile."""
    leaving = load.remote_bytes / load.drain_bytes_per_ns
    return Floors(
        compute_ns=load.mainloop_ns + load.least_staging_ns,
        issue_ns=load.q_loop_ns + load.rounds * load.least_staging_ns,
        drain_ns=load.q_loop_ns + load.least_staging_ns + leaving if leaving else 0.0,
    )
