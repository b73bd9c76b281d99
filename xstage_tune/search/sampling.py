"""Optuna's view of a space: its parameters, and its samplers by name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from xstage_tune.base.errors import DeviceError
from xstage_tune.families.family import Params, Value
from xstage_tune.search.space import Space

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler

SamplerName = Literal["tpe", "gp", "random", "exhaustive"]


def make_sampler(name: SamplerName, seed: int) -> BaseSampler:
    """A sampler by name; ``exhaustive`` asks none, and gets the cheapest.

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


def as_suggestions(params: Params, axes: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """What :func:`suggest` must be handed to return ``params``."""
    return {
        name: axes[name].index(value) if _ordered(axes[name]) else value for name, value in params.items()
    }


def _ordered(values: tuple[Value, ...]) -> bool:
    return all(isinstance(value, int) for value in values)
