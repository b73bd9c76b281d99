"""What is computed of a finished study to report it: launches of its configs, their audits and residuals.

Launches are simulated as the search simulates them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.audit.run import Audit, audit
from xstage_tune.families.binding import bind, family_of
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.study_case import Chosen, StudyCase
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.pipeline import PipelineRun
from xstage_tune.simulator.traces import occupancy

#: The first repeat of a search.
SEED = 0
#: Of the capacity; a queue this full pushes back.
_FULL = 0.999
_COUPLED_PLACE = 5
_HALVINGS, _DOUBLINGS = 3, 6
_FEWEST_TOKENS, _MOST_TOKENS = 1024, 65_536
_LINE_POINTS = 48

Floats = NDArray[np.float64]


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
    def place(self) -> int:
        """Of its config, and of the counterfactual one of its own."""
        return _COUPLED_PLACE if self.coupled else self.chosen.place

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


@dataclass(frozen=True, slots=True)
class Residuals:
    """E_res of one config until all stores have arrived, against the sequence length; arrays over ``tokens``.

    Args:
        alone_ns: T_FA, the same launch with no remote stores.
        xstage_ns, coupled_ns: E_res of the X-Stage issuer and of one that waits for completion.
    """

    tokens: Floats
    alone_ns: Floats
    xstage_ns: Floats
    coupled_ns: Floats


def simulated_residuals(workload: Workload, platform: PlatformProfile, config: KernelConfig) -> Residuals:
    """Simulate ``config`` at the workload's length and at halves and doubles of it, with either issuer."""
    kernels = SimulatedKernels(platform)
    rows = []
    for tokens in _lengths(workload.token_count):
        launch = kernels.launch(workload.model_copy(update={workload.TOKENS_KEY: tokens}), config)
        alone_ns = launch.without_remote_stores().run(SEED).end_ns
        xstage_ns = launch.run(SEED).end_ns
        coupled_ns = launch.run(SEED, completion_coupled=True).end_ns
        rows.append((tokens, alone_ns, xstage_ns - alone_ns, coupled_ns - alone_ns))
    return Residuals(*np.array(rows, np.float64).T)


def predicted_residuals(
    workload: Workload, platform: PlatformProfile, config: KernelConfig, tokens: Floats
) -> Residuals:
    """The closed forms at ``tokens``; T_FA is the Q-loops of the busiest SM."""
    rows = []
    for count in np.unique(tokens.astype(np.int64)).tolist():
        at = workload.model_copy(update={workload.TOKENS_KEY: count})
        arrival = bind(at, platform, config).estimate(config).until_arrived
        assert arrival is not None, "residuals are drawn of families that predict them"
        alone_ns = arrival.mainloops_ns
        exposed_ns = (arrival.residual_ns.value, arrival.completion_coupled_residual_ns.value)
        rows.append((count, alone_ns, *exposed_ns))
    return Residuals(*np.array(rows, np.float64).T)


def line_lengths(tokens: int) -> Floats:
    """Sequence lengths at which predictions are drawn, over the range of the simulated ones."""
    lengths = _lengths(tokens)
    return np.geomspace(lengths[0], lengths[-1], _LINE_POINTS)


def _lengths(tokens: int) -> list[int]:
    """``tokens``, halves of it from 1,024 on, and doubles up to 65,536, but one in any case."""
    halves = [tokens // 2**power for power in range(_HALVINGS, 0, -1)]
    doubles = [tokens * 2**power for power in range(1, _DOUBLINGS + 1)]
    return [
        *(half for half in halves if half >= _FEWEST_TOKENS),
        tokens,
        *(double for double in doubles if double <= max(_MOST_TOKENS, 2 * tokens)),
    ]


@dataclass(frozen=True, slots=True)
class StudyAnalysis:
    """A study and what is computed of it.

    Args:
        cases: the simulated launch of each config of :meth:`StudyCase.chosen`, in order; empty of a family
            that is not simulated.
        pair: what is shown side by side: two configs, or where there are no two both issuers of the answer;
            None without cases.
        audits: of each of those configs, in order; empty where nothing leaves the GPU.
        residuals: as simulated and as predicted, of ``residual_config``; None of a family that does not
            predict them.
    """

    study: StudyCase
    cases: tuple[Case, ...]
    pair: tuple[Case, Case] | None
    audits: tuple[Audit, ...] = ()
    residual_config: KernelConfig | None = None
    residuals: tuple[Residuals, Residuals] | None = None


def analyse(study: StudyCase) -> StudyAnalysis:
    """Simulate and audit the configs of ``study`` that are worth showing.

    Raises:
        UsageError: the platform lacks what the audit or the simulator needs.
    """
    workload, platform = study.workload, study.platform
    if not family_of(workload).simulated:
        return StudyAnalysis(study, (), None)
    simulations = Simulations(workload, platform)
    cases = tuple(simulations.case(one) for one in study.chosen())
    pair = _pair(study, simulations, cases)
    if not workload.stores_remotely:
        return StudyAnalysis(study, cases, pair)
    audits = tuple(audit(workload, platform, case.chosen.config, simulate=True) for case in cases)
    config = (study.result.default or study.result.best).config
    if bind(workload, platform).estimate(config).until_arrived is None:
        return StudyAnalysis(study, cases, pair, audits)
    residuals = (
        simulated_residuals(workload, platform, config),
        predicted_residuals(workload, platform, config, line_lengths(workload.token_count)),
    )
    return StudyAnalysis(study, cases, pair, audits, config, residuals)


def _pair(study: StudyCase, simulations: Simulations, cases: tuple[Case, ...]) -> tuple[Case, Case]:
    contrast = study.contrast()
    if contrast is None:
        answer = next(case for case in cases if case.chosen.answer)
        return simulations.case(answer.chosen, coupled=True), answer
    first, second = (next(case for case in cases if case.chosen == one) for one in contrast)
    return first, second
