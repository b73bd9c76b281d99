"""All trials of a study in the formats that other tuners read: Kernel Tuner's cache and T4 results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from xstage_tune.export.record import TunedConfig

_NS_PER_MS = 1e6
_T4_VERSION = "1.0.0"
_ERRORS = {"failed": "RuntimeFailedConfig", "pruned": "InvalidConfig"}
_INVALIDITY = {"complete": "correct", "failed": "runtime", "pruned": "constraints"}
#: What stands for a parameter that a trial's schedule does not have.
_ABSENT = 0


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial: parameter values by name, and the repeats of its objective, none where it did not run.

    ``state`` is complete, failed or, where it could not be built, pruned. What a bound cut is no record.
    """

    params: dict[str, Any]
    state: str
    samples_ns: tuple[float, ...]
    created_at: str

    @property
    def times_ms(self) -> list[float]:
        return [sample / _NS_PER_MS for sample in self.samples_ns]

    @property
    def time_ms(self) -> float | None:
        return median(self.times_ms) if self.samples_ns else None


@dataclass(frozen=True)
class History:
    """A study's trials, with the names of all their parameters in one order."""

    tuned: TunedConfig
    trials: tuple[TrialRecord, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Parameter names, in the order in which trials first have them."""
        return tuple(dict.fromkeys(key for trial in self.trials for key in trial.params))

    def values(self, trial: TrialRecord) -> dict[str, Any]:
        """All parameters of a trial, those that it does not have as 0."""
        return {key: trial.params.get(key, _ABSENT) for key in self.keys}


def to_kernel_tuner(history: History) -> dict[str, Any]:
    """Kernel Tuner's cache file; times in ms, infeasible and failed trials by its error names.

    ``cache`` has to be the last key: its reader goes by how the file ends.
    """
    keys = history.keys
    cache = {}
    for trial in history.trials:
        values = history.values(trial)
        cache[",".join(str(values[key]) for key in keys)] = {**values, **_cached(trial)}
    return {
        "device_name": _device(history.tuned),
        "kernel_name": history.tuned.config.kind,
        "problem_size": list(history.tuned.workload.problem_size),
        "tune_params_keys": list(keys),
        "tune_params": {key: _distinct(history, key) for key in keys},
        "objective": "time",
        "environment": _environment(history.tuned),
        **_unfinished(history),
        "cache": cache,
    }


def to_t4(history: History) -> dict[str, Any]:
    """The T4 auto-tuning results schema; times in ms."""
    return {
        "schema_version": _T4_VERSION,
        "metadata": {
            "timeunit": "milliseconds",
            "device_name": _device(history.tuned),
            "environment": _environment(history.tuned),
            **_unfinished(history),
        },
        "results": [
            {
                "timestamp": trial.created_at,
                "configuration": trial.params,
                "objectives": ["time"],
                "times": {"runtimes": trial.times_ms},
                "invalidity": _INVALIDITY[trial.state],
                "correctness": 1 if trial.state == "complete" else 0,
                "measurements": _measurements(trial),
            }
            for trial in history.trials
        ],
    }


def _environment(tuned: TunedConfig) -> dict[str, Any]:
    """What the trials ran on and by, under the names of T4's metadata; its other keys are this tool's own."""
    return {
        "device_query": tuned.platform.identity.model_dump(mode="json", exclude_none=True),
        "requirements": [f"xstage-tune=={tuned.provenance.tool_version}"],
        "platform": tuned.platform.model_dump(mode="json", exclude_none=True),
        "provenance": tuned.provenance.model_dump(mode="json"),
    }


def _unfinished(history: History) -> dict[str, str]:
    """Why these are only the trials so far; nothing of a search that has ended."""
    reason = history.tuned.objective.unfinished
    return {} if reason is None else {"unfinished": reason}


def _cached(trial: TrialRecord) -> dict[str, Any]:
    if trial.time_ms is None:
        return {"time": _ERRORS[trial.state], "timestamp": trial.created_at}
    return {"time": trial.time_ms, "times": trial.times_ms, "timestamp": trial.created_at}


def _measurements(trial: TrialRecord) -> list[dict[str, Any]]:
    return [] if trial.time_ms is None else [{"name": "time", "value": trial.time_ms, "unit": "ms"}]


def _device(tuned: TunedConfig) -> str:
    """What the times are of: a GPU, or a prediction for it."""
    gpu = tuned.platform.gpu
    objective = tuned.objective
    return gpu if objective.basis == "measured" else f"{gpu} ({objective.basis} on {objective.device})"


def _distinct(history: History, key: str) -> list[Any]:
    values = {history.values(trial)[key] for trial in history.trials}
    return sorted(values, key=lambda value: (isinstance(value, str), value))
