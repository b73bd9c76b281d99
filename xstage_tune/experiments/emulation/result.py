"""What an emulation found, under the names of its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from statistics import median
from typing import Any

from xstage_tune.experiments.emulation.cases import WITHOUT_STORES, EmulationCase, cases_of, skeleton_of
from xstage_tune.experiments.emulation.prediction import (
    ClosedForm,
    Landmarks,
    as_kernel_ns,
    closed_form,
    landmarks,
    simulated,
)
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.families.config_files import config_keys
from xstage_tune.launches.skeleton_figures import LaunchFigures, median_of
from xstage_tune.simulator.measuring import SIMULATOR

_PERCENT = 100.0
#: Of a time in ns, beyond which a difference is rounding.
_NS_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case's launches, and what was predicted of it.

    Args:
        launches: one for each repeat that was measured, at least one.
        simulated: None where the device is the simulator, or the platform does not speak of the path.
        closed: None where the platform does not speak of the path.
        as_kernel_ns: what search has for the config; see :func:`as_kernel_ns`.
    """

    case: EmulationCase
    launches: tuple[LaunchFigures, ...]
    simulated: tuple[LaunchFigures, ...] | None
    closed: ClosedForm | None
    as_kernel_ns: float | None = None

    @property
    def makespan_ns(self) -> float:
        """Median over the repeats."""
        return median(launch.makespan_ns for launch in self.launches)

    @property
    def spread(self) -> float:
        """Range of the repeats' makespans over their median."""
        samples = [launch.makespan_ns for launch in self.launches]
        return (max(samples) - min(samples)) / self.makespan_ns if self.makespan_ns else 0.0

    @property
    def simulated_makespan_ns(self) -> float | None:
        return median(launch.makespan_ns for launch in self.simulated) if self.simulated else None

    @property
    def issue_mean_ns(self) -> float | None:
        """Mean T_RS of the tiles that store to a remote owner, median over the repeats."""
        return median_of(self.launches, attrgetter("issue_mean_ns"))

    @property
    def simulated_issue_mean_ns(self) -> float | None:
        return median_of(self.simulated, attrgetter("issue_mean_ns")) if self.simulated else None

    @property
    def closed_makespan_ns(self) -> float | None:
        return self.closed.makespan_ns if self.closed else None

    def keys(self) -> dict[str, Any]:
        return {
            "label": self.case.label,
            "schedule": self.case.name,
            "value": self.case.value,
            "config": config_keys(self.case.config),
            "remote": self.case.remote,
            "emulated": _medians(self.launches),
            "samples_ns": [launch.makespan_ns for launch in self.launches],
            "spread": self.spread,
            "simulated": _medians(self.simulated) if self.simulated else None,
            "simulated_error_pct": {
                "makespan": error_pct(self.simulated_makespan_ns, self.makespan_ns),
                "issue_mean": error_pct(self.simulated_issue_mean_ns, self.issue_mean_ns),
            },
            "closed_form": asdict(self.closed) if self.closed else None,
            "as_kernel_ns": self.as_kernel_ns,
            "closed_form_error_pct": {"makespan": error_pct(self.closed_makespan_ns, self.makespan_ns)},
        }


@dataclass(frozen=True, slots=True)
class Residual:
    """E_res = T_fused - T_FA of an attention at one value of a sweep, ns; see equations 17 to 19."""

    case: EmulationCase
    emulated_ns: float
    simulated_ns: float | None
    closed_ns: float | None


@dataclass(frozen=True, slots=True)
class EmulationResult:
    """The answer of an emulation.

    Args:
        run_id: in the store.
        device: what ran the skeletons.
        device_name: the GPU.
        cases: in the order of the request; those of an interrupted run that were launched.
        throttled_launches: during which the GPU's clocks were held down.
    """

    run_id: str
    request: EmulationRequest
    device: str
    device_name: str
    cases: tuple[CaseResult, ...]
    landmarks: Landmarks
    throttled_launches: int = 0

    def of(self, name: str, value: float | None = None) -> CaseResult | None:
        """The case of a schedule at one value of the sweep."""
        return next((one for one in self.cases if (one.case.name, one.case.value) == (name, value)), None)

    def values(self) -> tuple[float | None, ...]:
        """Values of the sweep that have a case; one None without a sweep."""
        return tuple(dict.fromkeys(one.case.value for one in self.cases))

    def interleaved_over_wave(self, value: float | None = None) -> dict[str, float | None]:
        """Wave's time over interleaved's, emulated and as predicted: above 1 interleaving is faster."""
        wave, interleaved = self.of("wave", value), self.of("interleaved", value)

        def ratio(of: Callable[[CaseResult], float | None]) -> float | None:
            above = of(wave) if wave else None
            below = of(interleaved) if interleaved else None
            return above / below if above and below else None

        return {
            "emulated": ratio(lambda one: one.makespan_ns),
            "simulated": ratio(lambda one: one.simulated_makespan_ns),
            "closed_form": ratio(lambda one: one.closed_makespan_ns),
        }

    def residuals(self) -> tuple[Residual, ...]:
        """Of each attention case that has a launch without remote stores beside it."""
        pairs = ((one, self.of(WITHOUT_STORES, one.case.value)) for one in self.cases if one.case.remote)
        return tuple(
            Residual(
                case=one.case,
                emulated_ns=one.makespan_ns - alone.makespan_ns,
                simulated_ns=_less(one.simulated_makespan_ns, alone.simulated_makespan_ns),
                closed_ns=one.closed.residual_ns if one.closed else None,
            )
            for one, alone in pairs
            if alone is not None
        )

    def keys(self) -> dict[str, Any]:
        """As plain keys, stable and sorted by the writer."""
        request = self.request.keys()
        platform = request.pop("platform")["name"]
        return {
            "run_id": self.run_id,
            "device": self.device,
            "device_name": self.device_name,
            **request,
            "workload": self.request.workload.name,
            "workload_keys": request["workload"],
            "platform": platform,
            "cases": [one.keys() for one in self.cases],
            "interleaved_over_wave": [
                {"value": value, **ratios}
                for value in self.values()
                if (ratios := self.interleaved_over_wave(value))["emulated"] is not None
            ],
            "residual_ns": [
                {
                    "label": one.case.label,
                    "value": one.case.value,
                    "emulated": one.emulated_ns,
                    "simulated": one.simulated_ns,
                    "closed_form": one.closed_ns,
                }
                for one in self.residuals()
            ],
            "throttled_launches": self.throttled_launches,
            "d_knee_rows": self.landmarks.lead_knee_rows,
            "converged_tokens": self.landmarks.converged_tokens,
        }


def conclude(
    request: EmulationRequest,
    launches: Mapping[str, Sequence[LaunchFigures]],
    *,
    run_id: str,
    device: str,
    device_name: str,
    throttled_launches: int = 0,
) -> EmulationResult:
    """Put the launches of each case, by label, beside its predictions.

    Raises:
        UsageError: the platform lacks what the predictions need.
    """
    emulated = device != SIMULATOR
    results = []
    for case in cases_of(request):
        measured = tuple(launches.get(case.label, ()))
        if not measured:
            continue
        skeleton = skeleton_of(case, request)
        results.append(
            CaseResult(
                case=case,
                launches=measured,
                simulated=simulated(skeleton, request.platform, request.seed)
                if request.predicted and emulated
                else None,
                closed=closed_form(case, skeleton, request) if request.predicted else None,
                as_kernel_ns=as_kernel_ns(case, request) if request.predicted else None,
            )
        )
    found = landmarks(request) if request.predicted else Landmarks()
    return EmulationResult(run_id, request, device, device_name, tuple(results), found, throttled_launches)


def error_pct(predicted: float | None, emulated: float | None) -> float | None:
    """By how much a time that was predicted exceeds what was emulated, percent; both in ns.

    None where either is missing, and where nothing was left to emulate: no time, less than none, or only the
    last digits of a difference.
    """
    if predicted is None or emulated is None or round(emulated, _NS_DECIMALS) <= 0:
        return None
    return _PERCENT * (predicted / emulated - 1.0)


def _medians(launches: Sequence[LaunchFigures]) -> dict[str, float | None]:
    return {one.name: median_of(launches, attrgetter(one.name)) for one in fields(LaunchFigures)}


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
