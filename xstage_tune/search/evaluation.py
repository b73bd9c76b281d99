"""One evaluation of a config, whatever comes of it: times to compare, or why there are none.

A search must outlive its candidates. One may not compile or not launch, may deliver wrong data, crash the
compiler, or return a time that is none; each of these is an *outcome* of the config, as its time is. What is
no outcome passes: the user's wish to stop, and a store that keeps nothing any more. Running out of host
memory is an outcome: the allocation failed, the process is whole, and the next config may need less.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from xstage_tune.base.errors import RunInterrupted, StoreError, XStageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.number_format import duration
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelRun, run_kernel
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Device

#: A latency below this part of its lower bound is taken for no time of this work. One that is below the bound
#: but above this is kept: the bound rests on the platform's figures, which may be too low for the device.
LEAST_PART_OF_BOUND = 0.5

_NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d.,]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """A config without a time.

    Args:
        reason: in one line.
        raised: the device raised it; False where it returned times that are none.
    """

    reason: str
    raised: bool


def evaluate(
    device: Device,
    workload: Workload,
    config: KernelConfig,
    path: StorePath,
    repeats: int,
    *,
    least_ns: float,
) -> KernelRun | Failure:
    """Run a config ``repeats`` times.

    Args:
        path: of the remote stores.
        least_ns: the lower bound of its latency, by which impossible times are told.

    Raises:
        RunInterrupted, StoreError: these are not of the config.
    """
    try:
        run = run_kernel(device, workload, config, path, repeats)
    except (RunInterrupted, StoreError):
        raise
    except XStageError as error:
        return Failure(error.message, raised=True)
    except Exception as error:
        return Failure(_described(error), raised=True)
    reason = unusable(run, least_ns)
    return run if reason is None else Failure(reason, raised=False)


def unusable(run: KernelRun, least_ns: float) -> str | None:
    """Why a run's times cannot be compared with others'; None where they can."""
    for name, samples_ns in (("latency", run.latency_ns), ("stall", run.stall_ns)):
        if not samples_ns:
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
    """

    reason: str
    configs: int
    example: str


def grouped(failures: Iterable[tuple[KernelConfig, str]]) -> tuple[FailureGroup, ...]:
    """Failures by reason, the most frequent first."""
    groups: dict[str, FailureGroup] = {}
    for config, reason in failures:
        key = _NUMBER.sub("#", reason.replace(config.label, "the config"))
        found = groups.get(key)
        if found is None:
            groups[key] = FailureGroup(reason, 1, config.label)
        else:
            groups[key] = FailureGroup(found.reason, found.configs + 1, found.example)
    return tuple(sorted(groups.values(), key=lambda group: -group.configs))


def _described(error: Exception) -> str:
    """An error that is none of ours: its type, its first line, and where it was raised."""
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{message} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else message
