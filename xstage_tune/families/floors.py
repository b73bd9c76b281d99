"""Lower bounds on a config's time that hold for every schedule and tile order.

Each floor says what one resource needs at the very least. They bound what the simulator can return, so
cutting configs whose bound is no better than a measured time never removes the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass


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
