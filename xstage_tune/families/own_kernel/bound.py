"""The family for one own space on one platform."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import nan

from xstage_tune.base.errors import UsageError
from xstage_tune.families.advice import Action
from xstage_tune.families.budget import Budget, Violation
from xstage_tune.families.family import Axes, BoundFamily, Judged, Value, Variants
from xstage_tune.families.floors import Floors
from xstage_tune.families.given_bursts import GivenBursts, GivenBurstsEstimate, estimate_bursts
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.own_kernel.bursts import Phase, PhaseTimes, phases_of
from xstage_tune.families.own_kernel.config import OwnConfig
from xstage_tune.families.own_kernel.expressions import Constraint
from xstage_tune.families.own_kernel.workload import OwnSpace
from xstage_tune.families.prediction import Prediction
from xstage_tune.families.resources import Resources

#: What is known of every config of a space without bursts.
_UNKNOWN = Judged(Floors(0.0, 0.0, 0.0), Prediction(nan, nan), None)


class BoundOwn(BoundFamily[OwnSpace, OwnConfig]):
    """See :class:`~xstage_tune.families.family.BoundFamily`."""

    config_model = OwnConfig

    def check(self, config: OwnConfig) -> Resources:
        """What a config breaks; an own kernel has no budgets that are known."""
        return Resources((), tuple(self.rules(config)))

    def budgets(self, config: OwnConfig) -> tuple[Budget, ...]:  # noqa: ARG002 - none is known
        return ()

    def rules(self, config: OwnConfig) -> Iterator[Violation]:
        """The axes, then the constraints in the order of the file."""
        for name, values in self.workload.axes.items():
            if config.values.get(name) not in values:
                yield Violation("axes", f"{name} = {config.values.get(name)} is no value of the axis")
                return
        known = {**self.workload.known, **config.values}
        for constraint in self._constraints:
            if not constraint.holds(known):
                yield Violation(constraint.text, f"{constraint.text}: not with {config.label}")

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...]:
        known = {*self.workload.axes, *self.workload.known}
        return tuple(Constraint(text, known) for text in self.workload.constraints)

    def default_candidates(self) -> Sequence[OwnConfig]:
        return [OwnConfig(values=self.workload.default)]

    def yardsticks(self) -> dict[str, OwnConfig]:
        """See :class:`~xstage_tune.families.family.BoundFamily`."""
        name = self.workload.yardstick
        return {name: OwnConfig(yardstick=name)} if name else {}

    def axes(self) -> Axes:
        return dict(self.workload.axes)

    def searched_axes(self) -> Axes:
        """Its own, and no other."""
        return self.axes()

    def variants(self, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Variants[OwnConfig]]:
        for values in itertools.product(*axes.values()):
            config = self._config(dict(zip(axes, values, strict=True)))
            yield Variants(config, 1, (config,))

    @staticmethod
    def _config(values: Mapping[str, Value]) -> OwnConfig:
        """Of values that were checked with the space."""
        return OwnConfig.model_construct(values=values)

    def tiles(self, config: OwnConfig) -> int:  # noqa: ARG002 - nobody knows
        return 0

    def launch(
        self,
        config: OwnConfig,  # noqa: ARG002
        given: GivenTimes | None = None,  # noqa: ARG002
        *,
        dependencies: bool = True,  # noqa: ARG002
    ) -> FusedLaunch:
        """Raises UsageError: nobody knows its tiles."""
        raise UsageError(
            f"'{self.workload.name}' is a kernel of its own, which is neither simulated nor emulated",
            "xstage-tune search measures it by its command",
        )

    def judge(self) -> Callable[[OwnConfig], Judged]:
        """By the bursts of all configs, where the space has a function of them; else nothing is known."""
        if not self.workload.bursts:
            return lambda config: _UNKNOWN._replace(key=config)
        times, phases = PhaseTimes(self.platform), self._phases

        def judge(config: OwnConfig) -> Judged:
            floors = times.floors(phases[config])
            return Judged(floors, times.prediction(phases[config], floors), config)

        return judge

    @cached_property
    def _phases(self) -> dict[OwnConfig, tuple[Phase, ...]]:
        every = (variants.checked for variants in self.variants(self.workload.axes))
        return phases_of(self.workload, [config for config in every if self.check(config).feasible])

    def estimate(
        self,
        config: OwnConfig,
        given: GivenTimes | None = None,  # noqa: ARG002 - gaps are the function's
    ) -> GivenBurstsEstimate:
        """The design test of the phase that stores most."""
        if not self.workload.bursts:
            raise UsageError(
                f"'{self.workload.name}' says nothing of its bursts, so there is nothing to audit",
                "give bursts = 'MODULE:FUNCTION' in its file; or xstage-tune audit --burst-bytes ...",
            )
        phases = phases_of(self.workload, [config])[config]
        most = max(phases, key=lambda phase: phase.burst_bytes * phase.producers * phase.rounds, default=None)
        if most is None or not most.burst_bytes:
            raise UsageError(f"config {config.label} of '{self.workload.name}' stores nothing remotely")
        flavour = PhaseTimes(self.platform).terms(most).flavour
        bursts = GivenBursts(most.burst_bytes, most.producers, most.gap_ns, flavour, most.rounds)
        return estimate_bursts(self.platform, bursts)

    def advice(
        self,
        config: OwnConfig,  # noqa: ARG002 - it is of the bursts
        estimate: GivenBurstsEstimate,
    ) -> tuple[Action, ...]:
        return estimate.actions()

    def depth(self, config: OwnConfig) -> int:  # noqa: ARG002 - nobody knows
        return 0

    def assumed(self, config: OwnConfig) -> str | None:
        """Nothing, where nothing is predicted."""
        return super().assumed(config) if self.workload.bursts else None
