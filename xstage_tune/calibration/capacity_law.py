"""Which law Q(K) follows: constant, linear, power or saturating, chosen by leave-one-out error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.calibration.capacity import CapacityFit
from xstage_tune.calibration.reduce import Floats
from xstage_tune.platforms.schema import CapacityLaw

LawName = Literal["constant", "linear", "power", "saturating"]

#: A law with one more parameter must lower the leave-one-out error by this factor.
IMPROVEMENT = 0.9
#: Relative error of a fitted Q: laws that both predict this well cannot be told apart.
CAPACITY_ERROR = 0.02

_SCALES = np.geomspace(1.0, 1e4, 801)  # of the saturating law, in producers


@dataclass(frozen=True, slots=True)
class _Law:
    name: LawName
    scale_bytes: float
    exponent: float | None = None
    producers_scale: float | None = None

    def log_bytes(self, producers: Floats) -> Floats:
        shape = np.zeros_like(producers)
        if self.name == "linear":
            shape = np.log(producers)
        elif self.exponent is not None:
            shape = self.exponent * np.log(producers)
        elif self.producers_scale is not None:
            shape = _log_saturation(producers, np.array(self.producers_scale))
        log_bytes: Floats = np.log(self.scale_bytes) + shape
        return log_bytes


def fit_capacity_law(flavour: StoreFlavour, fits: Sequence[CapacityFit]) -> CapacityLaw | None:
    """The simplest law that predicts left-out K best, in log space; None without a reached knee.

    Laws with two parameters need three K, so that leaving one out still determines them.
    """
    known = [fit for fit in fits if fit.flavour == flavour and fit.knee_reached]
    if not known:
        return None
    producers = np.array([fit.producers for fit in known], dtype=np.float64)
    log_bytes = np.log([fit.bytes for fit in known])
    simple: list[_Fitter] = [_constant, _linear]
    laws = simple + ([_power, _saturating] if len(known) > 2 else []) if len(known) > 1 else [_constant]

    chosen = laws[0]
    chosen_error = _left_out_error(chosen, producers, log_bytes)
    for law in laws[1:]:
        error = _left_out_error(law, producers, log_bytes)
        if error < chosen_error * (1.0 if law in simple else IMPROVEMENT):
            chosen, chosen_error = law, error
    fitted = chosen(producers, log_bytes)
    relative = np.expm1(fitted.log_bytes(producers) - log_bytes)
    return CapacityLaw(
        flavour=flavour,
        law=fitted.name,
        scale_bytes=fitted.scale_bytes,
        exponent=fitted.exponent,
        producers_scale=fitted.producers_scale,
        rms_relative_error=float(np.sqrt(np.mean(relative**2))),
    )


_Fitter = Callable[[Floats, Floats], _Law]


def _left_out_error(law: _Fitter, producers: Floats, log_bytes: Floats) -> float:
    """Root mean square log error of each point predicted from the others, with ``CAPACITY_ERROR`` added.

    Infinite with one point.
    """
    if len(producers) < 2:
        return float("inf")
    errors = []
    for left_out in range(len(producers)):
        kept = np.arange(len(producers)) != left_out
        fitted = law(producers[kept], log_bytes[kept])
        errors.append(fitted.log_bytes(producers[[left_out]])[0] - log_bytes[left_out])
    return float(np.sqrt(np.mean(np.square(errors)) + CAPACITY_ERROR**2))


def _constant(producers: Floats, log_bytes: Floats) -> _Law:  # noqa: ARG001 - the signature of a law
    return _Law("constant", float(np.exp(log_bytes.mean())))


def _linear(producers: Floats, log_bytes: Floats) -> _Law:
    return _Law("linear", float(np.exp((log_bytes - np.log(producers)).mean())))


def _power(producers: Floats, log_bytes: Floats) -> _Law:
    log_producers = np.log(producers)
    centred = log_producers - log_producers.mean()
    exponent = float(centred @ log_bytes / (centred @ centred))
    scale = float(np.exp(log_bytes.mean() - exponent * log_producers.mean()))
    return _Law("power", scale, exponent=exponent)


def _saturating(producers: Floats, log_bytes: Floats) -> _Law:
    residual = log_bytes - _log_saturation(producers, _SCALES[:, None])
    best = int(np.argmin(residual.var(axis=1)))
    scale = float(np.exp(residual[best].mean()))
    return _Law("saturating", scale, producers_scale=float(_SCALES[best]))


def _log_saturation(producers: Floats, scale: Floats) -> Floats:
    return np.log(-np.expm1(-producers / scale))
