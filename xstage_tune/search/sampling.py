"""Optuna's view of a space: its parameters, and its samplers by name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.limits import SamplerName
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.family import Params, Value
from xstage_tune.search.space import Space, params_of

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

#: Outcomes that a sampler learns from at most. What one proposal costs grows with them, so without a limit a
#: study's cost would be quadratic in its trials.
_MOST_HISTORY = 128
#: How many of them it goes on with behind that: the best, and the newest of the others.
_KEPT_BEST, _KEPT_NEWEST = 32, 32


class Proposer:
    """A sampler with what it was told, at a cost of one proposal that does not grow with the study.

    Optuna is loaded with the first proposal: many a search ends before it asks for one.
    """

    def __init__(self, name: SamplerName, seed: int, space: Space) -> None:
        self._name, self._seed, self._space = name, seed, space
        self._learns = name in ("tpe", "gp")
        self._asked: tuple[KernelConfig, optuna.Trial] | None = None
        self._renewals = 0
        #: What it is to be told before the first proposal.
        self._untold: list[tuple[KernelConfig, float | None]] = []
        self._study: optuna.Study | None = None

    @property
    def study(self) -> optuna.Study:
        """Optuna's, with what the sampler knows now."""
        if self._study is None:
            self._distributions = distributions_of(self._space)
            self._study = self._renewed([])
            for config, objective_ns in self._untold:
                self.tell(config, objective_ns)
            self._untold.clear()
        return self._study

    def propose(self) -> KernelConfig:
        """The config that the sampler would try next; it may be none of the space."""
        trial = self.study.ask()
        config: KernelConfig = self._space.family.config_of(suggest(trial, self._space))
        self._asked = config, trial
        return config

    def tell(self, config: KernelConfig, objective_ns: float | None) -> None:
        """Let the sampler learn what a config measured, whoever proposed it; None where it cannot be used."""
        if self._study is None:
            self._untold.append((config, objective_ns))
            return
        from optuna.trial import TrialState, create_trial

        state = TrialState.PRUNED if objective_ns is None else TrialState.COMPLETE
        asked, self._asked = self._asked, None
        if asked is not None and asked[0] == config:
            self._study.tell(asked[1], objective_ns, state)
            self._told += 1
        elif self._learns:
            values = as_suggestions(params_of(config), self._space.axes)
            distributions = {name: self._distributions[name] for name in values}
            trial = create_trial(state=state, value=objective_ns, params=values, distributions=distributions)
            self._study.add_trial(trial)
            self._told += 1
        if self._told > _MOST_HISTORY:
            history = _to_remember(self._study.get_trials(deepcopy=False)) if self._learns else []
            self._study = self._renewed(history)

    def _renewed(self, history: list[FrozenTrial]) -> optuna.Study:
        """A study of optuna's that begins with a history."""
        import optuna

        study = optuna.create_study(sampler=make_sampler(self._name, self._seed + self._renewals))
        study.add_trials(history)
        self._told = len(history)
        self._renewals += 1
        return study


def _to_remember(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The best and the newest of the others, in their order."""
    measured = [trial for trial in trials if trial.values]
    best = {trial.number for trial in sorted(measured, key=lambda trial: trial.values[0])[:_KEPT_BEST]}
    newest = [trial.number for trial in trials if trial.state.is_finished() and trial.number not in best]
    kept = best.union(newest[-_KEPT_NEWEST:])
    return [trial for trial in trials if trial.number in kept]


def make_sampler(name: SamplerName, seed: int) -> BaseSampler:
    """A sampler by name.

    GP has no conditional axes: it draws those at random. Optuna's own notes go nowhere, since stderr is for
    what a user can act on.

    Raises:
        DeviceError: as :func:`require_sampler`.
    """
    import optuna  # not at the top: reading a finished study names samplers and makes none

    require_sampler(name)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "tpe":
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=8)
        if name == "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=8)
        return optuna.samplers.RandomSampler(seed=seed)


def require_sampler(name: SamplerName) -> None:
    """Check that a sampler can be made, before anything is kept of its search.

    Raises:
        DeviceError: ``gp`` without torch, which its Gaussian process is fitted by.
    """
    if name == "gp" and importlib.util.find_spec("torch") is None:
        raise DeviceError("--sampler gp needs torch, which is not installed", "pip install torch")


def suggest(trial: optuna.Trial, space: Space) -> Params:
    """Ask for a value of each axis that applies: ordered axes by position, the others by category."""
    params: Params = {}
    conditional = space.family.conditional_axes
    for name, values in space.axes.items():
        if name in conditional:
            other, value = conditional[name]
            if params[other] != value:
                continue
        if _ordered(values):
            params[name] = values[trial.suggest_int(name, 0, len(values) - 1)]
        else:
            chosen = trial.suggest_categorical(name, values)
            params[name] = next(value for value in values if value == chosen)
    return params


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """What :func:`suggest` draws each axis from."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(0, len(values) - 1) if _ordered(values) else CategoricalDistribution(values)
        for name, values in space.axes.items()
    }


def as_suggestions(params: Params, axes: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """What :func:`suggest` must be handed to return ``params``."""
    return {
        name: axes[name].index(value) if _ordered(axes[name]) else value for name, value in params.items()
    }


def _ordered(values: tuple[Value, ...]) -> bool:
    return all(isinstance(value, int) for value in values)
