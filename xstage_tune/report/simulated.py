"""Launches of chosen configs, simulated as the search simulates them, with what figures and tables need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.report.figure import Floats
from xstage_tune.report.study_case import Chosen
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.pipeline import PipelineRun
from xstage_tune.simulator.traces import occupancy

#: The first repeat of a search.
SEED = 0
#: Of the capacity; a queue this full pushes back.
_FULL = 0.999
_COUPLED_COLOUR = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One config of a study and its simulated launch.

    Args:
        linear2: ``[n]`` whether a tile is of Linear-2; None for attention.
        capacity_bytes: Q.
        coupled: whether the issuer waits for completion, the counterfactual.
    """

    chosen: Chosen
    run: PipelineRun
    linear2: NDArray[np.bool_] | None
    capacity_bytes: float
    coupled: bool = False

    @property
    def label(self) -> str:
        """As legends call it."""
        return f"{self.chosen.label}, completion-coupled" if self.coupled else self.chosen.label

    @property
    def colour(self) -> int:
        return _COUPLED_COLOUR if self.coupled else self.chosen.colour

    def spans_ns(self) -> Floats:
        """T_RS of the tiles that store to a remote owner: what staging takes, where others store them."""
        spans_ns = self.run.streams.staging_ns if self.chosen.hands_stores_over else self.run.issue_ns
        return spans_ns[self.run.streams.remote_bytes > 0]

    def handed_over_ns(self) -> Floats:
        """How long others take to store each such tile, spread as they are; empty where none do."""
        stores_ns = self.run.issue_ns - self.run.streams.staging_ns
        return stores_ns[(self.run.streams.remote_bytes > 0) & self.chosen.hands_stores_over]

    def tensor_active(self) -> float:
        """Fraction of the launch that an SM's mainloop runs, mean over the SMs."""
        streams = self.run.streams
        return float(streams.mainloop_ns.sum()) / (self.run.end_ns * streams.sms)

    def queue_full(self) -> float:
        """Fraction of the launch that the queue is at its capacity."""
        series = occupancy(self.run)
        full = series.value >= _FULL * self.capacity_bytes
        lasting = full[:-1] & full[1:]
        return float(np.diff(series.time_ns)[lasting].sum()) / self.run.end_ns


class Simulations:
    """Simulates configs of one workload on one platform."""

    def __init__(self, workload: Workload, platform: PlatformProfile) -> None:
        self._workload, self._platform = workload, platform
        self._kernels = SimulatedKernels(platform)

    def case(self, chosen: Chosen, *, coupled: bool = False) -> Case:
        """Simulate one launch of a config, with its queue traced.

        Raises:
            UsageError: the config does not fit, or the platform lacks T0, Q or compute figures.
        """
        launch = self._kernels.launch(self._workload, chosen.config)
        return Case(
            chosen=chosen,
            run=launch.run(SEED, trace_occupancy=True, completion_coupled=coupled),
            linear2=launch.linear2,
            capacity_bytes=launch.drain.capacity_bytes,
            coupled=coupled,
        )
