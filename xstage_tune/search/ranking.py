"""Bounds and expected times of every config of a space, and the order in which to try them.

Closed forms only. Configs that differ in nothing that those see are *twins*: of each set of twins the order
has one first, the others behind all first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.devices.kernels import Objective
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.attention_load import attention_load
from xstage_tune.search.attention_ranking import predict_attention
from xstage_tune.search.bounds import Floors, attention_floors, moe_floors
from xstage_tune.search.moe_load import MoeLoad, moe_load
from xstage_tune.search.moe_ranking import predict_moe
from xstage_tune.search.prediction import Prediction
from xstage_tune.workloads.schema import AttentionWorkload, MoeWorkload, Workload

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
    judge = _judge(workload, platform)
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
    order = np.lexsort((-_depth(configs), second_ns, np.maximum(predicted_ns, bound_ns)))
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


class _Judged(NamedTuple):
    """A config's bound and prediction, and the key of all that they follow from: twins share it."""

    floors: Floors
    prediction: Prediction
    key: Hashable


Judge = Callable[[KernelConfig], _Judged]


def _judge(workload: Workload, platform: PlatformProfile) -> Judge:
    if isinstance(workload, MoeWorkload):
        return _moe_judge(workload, platform)
    return _attention_judge(workload, platform)


def _moe_judge(workload: MoeWorkload, platform: PlatformProfile) -> Judge:
    """Loads are shared by all schedules of a tile, predictions by all tiles of equal loads."""
    loads: dict[Hashable, tuple[MoeLoad, Floors]] = {}
    predictions: dict[Hashable, Prediction] = {}

    def judge(config: KernelConfig) -> _Judged:
        assert isinstance(config, MegaMoeConfig)
        tile = (
            config.block_m, config.block_n, config.block_k, config.pipeline_stages,
            config.staging_depth, config.epilogue_warps, config.store_flavour,
        )  # fmt: skip
        if tile not in loads:
            load = moe_load(config, workload, platform)
            loads[tile] = load, moe_floors(load)
        load, floors = loads[tile]
        key = (config.schedule, config.block_m, load.slots, load.linear1, load.linear2, load.capacity_bytes)
        if key not in predictions:
            predictions[key] = predict_moe(load, config.schedule)
        return _Judged(floors, predictions[key], key)

    return judge


def _attention_judge(workload: AttentionWorkload, platform: PlatformProfile) -> Judge:
    def judge(config: KernelConfig) -> _Judged:
        assert isinstance(config, AttentionConfig)
        load = attention_load(config, workload, platform)
        return _Judged(attention_floors(load), predict_attention(load), (load, config.tile_order))

    return judge


def _depth(configs: Sequence[KernelConfig]) -> Ints:
    return np.array(
        [c.pipeline_stages if isinstance(c, MegaMoeConfig) else c.kv_stages for c in configs], np.int64
    )


def _repeats(keys: Sequence[Hashable]) -> NDArray[np.bool_]:
    """Which keys were there before, ``[n]``."""
    seen: set[Hashable] = set()
    repeats = np.zeros(len(keys), bool)
    for i, key in enumerate(keys):
        repeats[i] = key in seen
        seen.add(key)
    return repeats
