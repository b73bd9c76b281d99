"""Bounds and expected times of every config of a space, and the order in which to try them.

Closed forms only. Configs that differ in nothing that those see are *twins*: of each set of twins the order
has one first, the others behind all first ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.limits import Objective
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Of each config, ``[n]`` in the order of the space.

    Args:
        bound_ns: no measured objective is below it.
        predicted_ns: the expected objective.
        least_latency_ns: no launch is over sooner, whatever the objective.
        predicted_latency_ns: when a launch is expected to be over.
        order: indices of the configs, in the order in which to try them.
        twin: of each config, whether an equal one comes before it in the order.
        binding: the floor that makes the bound.
    """

    bound_ns: Floats
    predicted_ns: Floats
    least_latency_ns: Floats
    predicted_latency_ns: Floats
    order: Ints
    twin: NDArray[np.bool_]
    binding: tuple[str, ...]


def rank_configs(
    configs: Sequence[KernelConfig], workload: Workload, platform: PlatformProfile, objective: Objective
) -> Ranking:
    """Bound, predict and order ``configs``, all for one workload.

    Under the objective ``stall`` the bound is 0: nothing forces a role to wait.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
    """
    bound = bind(workload, platform)
    judge = bound.judge()
    judged = [judge(config) for config in configs]
    latency = objective == "latency"
    least_latency_ns = np.array([each.floors.latency_ns for each in judged])
    bound_ns = least_latency_ns if latency else np.zeros(len(judged))
    latency_ns = np.array([each.prediction.latency_ns for each in judged])
    stall_ns = np.array([each.prediction.stall_ns for each in judged])
    predicted_ns = latency_ns if latency else stall_ns
    # Of equal expectations first the one with less to wait for, or the shorter launch; then the deepest
    # pipeline, since of twins the one that keeps most in flight is the safest.
    second_ns = stall_ns if latency else latency_ns
    depth = np.array([bound.depth(config) for config in configs], np.int64)
    order = np.lexsort((-depth, second_ns, np.maximum(predicted_ns, bound_ns)))
    twin = _repeats([judged[i].key for i in order])
    return Ranking(
        bound_ns=bound_ns,
        predicted_ns=predicted_ns,
        least_latency_ns=least_latency_ns,
        predicted_latency_ns=latency_ns,
        order=np.concatenate((order[~twin], order[twin])),
        twin=twin[np.argsort(order)],
        binding=tuple(each.floors.binding for each in judged),
    )


def _repeats(keys: Sequence[Hashable]) -> NDArray[np.bool_]:
    """Which keys were there before, ``[n]``."""
    seen: set[Hashable] = set()
    repeats = np.zeros(len(keys), bool)
    for i, key in enumerate(keys):
        repeats[i] = key in seen
        seen.add(key)
    return repeats
