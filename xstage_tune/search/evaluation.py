"""One evaluation of a config, whatever comes of it: times to compare, or why there are none.

A search must outlive its candidates. One may not compile or not launch, may deliver wrong data, crash the
compiler, or return a time that is none; each of these is an *outcome* of the config, as its time is. What is
no outcome passes: the user's wish to stop, and a store that keeps nothing any more. Running out of host
memory is an outcome: the allocation failed, the process is whole, and the next config may need less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from xstage_tune.base.errors import (
    DeviceLost,
    Fault,
    RunInterrupted,
    StoreError,
    XStageError,
    described,
)
from xstage_tune.base.limits import Objective
from xstage_tune.base.number_format import duration
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelLaunch, KernelRun
from xstage_tune.launches.device import Device, LaunchInfo

#: A latency below this part of its lower bound is taken for no time of this work. One that is below the bound
#: but above this is kept: the bound rests on the platform's figures, which may be too low for the device.
LEAST_PART_OF_BOUND = 0.5

_NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d.,]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """A config without a time.

    Args:
        reason: in one line.
        fault: what it comes under.
        raised: the device raised it; False where it returned times that are none.
    """

    reason: str
    fault: Fault
    raised: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A config with its time."""

    run: KernelRun
    info: LaunchInfo


def evaluate(
    device: Device, launch: KernelLaunch, *, objective: Objective = "latency", least_ns: float = 0.0
) -> Evaluation | Failure:
    """Run a config.

    Args:
        objective: what must have been measured.
        least_ns: the lower bound of its latency, by which impossible times are told.

    Raises:
        RunInterrupted, StoreError, DeviceLost: these are not of the config.
    """
    try:
        (outcome,) = device.run([launch])
    except (RunInterrupted, StoreError, DeviceLost):
        raise
    except XStageError as error:
        return Failure(error.message, error.fault, raised=True)
    except Exception as error:
        return Failure(described(error), "fault", raised=True)
    reason = unusable(outcome.figures, least_ns, objective)
    if reason is not None:
        return Failure(reason, "unstable", raised=False)
    return Evaluation(outcome.figures, outcome.info)


def unusable(run: KernelRun, least_ns: float, objective: Objective = "latency") -> str | None:
    """Why a run's times cannot be compared with others'; None where they can.

    Args:
        objective: without which it is of no use; latency is needed whatever that is.
    """
    times = {"latency": run.latency_ns, "stall": run.stall_ns, "latency to compare with": run.against_ns}
    for name, samples_ns in times.items():
        if not samples_ns and name in ("latency", objective):
            return f"the device returned no {name}"
        zero_is_time = name == "stall"
        wrong = [ns for ns in samples_ns if not (isfinite(ns) and (ns > 0 or (zero_is_time and ns == 0)))]
        if wrong:
            return f"the device returned a {name} of {wrong[0]:g} ns"
    shortest_ns = min(run.latency_ns)
    if shortest_ns < LEAST_PART_OF_BOUND * least_ns:
        return (
            f"the device returned a latency of {duration(shortest_ns)}, not even half of its lower bound of "
            f"{duration(least_ns)}: it cannot have done its work"
        )
    return None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Configs that failed for the same reason, but for numbers in it.

    Args:
        reason: of the first of them.
        configs: how many.
        example: label of the first.
        fault: what it comes under; empty in results of earlier versions.
    """

    reason: str
    configs: int
    example: str
    fault: Fault | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a config has no time, as it is kept; ``fault`` is empty in trials of earlier versions."""

    reason: str
    fault: Fault | Literal[""] = ""


def grouped(failures: Iterable[tuple[KernelConfig, Failed]]) -> tuple[FailureGroup, ...]:
    """Failures by reason, the most frequent first."""
    groups: dict[str, FailureGroup] = {}
    for config, failed in failures:
        key = _NUMBER.sub("#", failed.reason.replace(config.label, "the config"))
        found = groups.get(key)
        if found is None:
            groups[key] = FailureGroup(failed.reason, 1, config.label, failed.fault)
        else:
            groups[key] = replace(found, configs=found.configs + 1)
    return tuple(sorted(groups.values(), key=lambda group: -group.configs))
