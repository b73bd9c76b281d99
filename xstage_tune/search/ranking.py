"""Bounds and expected times of every config of a space, and the order in which to try them.

Closed forms only. Predictions come from loads and schedules alone, so configs that differ in nothing that
either sees are *twins*: of each set of twins the order has one first, the others behind all first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
        order: indices of the configs, in the order in which to try them.
        twin: of each config, whether an equal one comes before it in the order.
        binding: the floor that makes the bound.
    """

    bound_ns: Floats
    predicted_ns: Floats
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
    bound_ns = np.array([floors.latency_ns if latency else 0.0 for floors, _ in judged])
    predicted_ns = np.array([p.latency_ns if latency else p.stall_ns for _, p in judged])
    # Of equal stalls the shorter launch is the better one.
    second_ns = np.array([prediction.latency_ns for _, prediction in judged])
    order, twin = _twins_last(np.maximum(predicted_ns, bound_ns), second_ns, _depth(configs))
    return Ranking(
        bound_ns=bound_ns,
        predicted_ns=predicted_ns,
        order=order,
        twin=twin,
        binding=tuple(floors.binding for floors, _ in judged),
    )


Judge = Callable[[KernelConfig], tuple[Floors, Prediction]]


def _judge(workload: Workload, platform: PlatformProfile) -> Judge:
    if isinstance(workload, MoeWorkload):
        return _moe_judge(workload, platform)
    return _attention_judge(workload, platform)


def _moe_judge(workload: MoeWorkload, platform: PlatformProfile) -> Judge:
    """Loads are shared by all schedules of a tile, predictions by all tiles of equal loads."""
    loads: dict[tuple[object, ...], tuple[MoeLoad, Floors]] = {}
    predictions: dict[tuple[object, ...], Prediction] = {}

    def judge(config: KernelConfig) -> tuple[Floors, Prediction]:
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
        return floors, predictions[key]

    return judge


def _attention_judge(workload: AttentionWorkload, platform: PlatformProfile) -> Judge:
    def judge(config: KernelConfig) -> tuple[Floors, Prediction]:
        assert isinstance(config, AttentionConfig)
        load = attention_load(config, workload, platform)
        return attention_floors(load), predict_attention(load)

    return judge


def _depth(configs: Sequence[KernelConfig]) -> Ints:
    """Pipeline stages: of twins the one that keeps most in flight is the safest."""
    return np.array(
        [c.pipeline_stages if isinstance(c, MegaMoeConfig) else c.kv_stages for c in configs], np.int64
    )


def _twins_last(first_ns: Floats, second_ns: Floats, depth: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Indices by ``first_ns``, then ``second_ns``; of equal ones the deepest, the others behind all.

    The second array says which configs those others are, ``[n]``.
    """
    by_value = np.lexsort((-depth, second_ns, first_ns))
    same = (np.diff(first_ns[by_value]) == 0) & (np.diff(second_ns[by_value]) == 0)
    behind = np.concatenate((np.zeros(min(1, by_value.size), bool), same))
    twin = np.zeros(by_value.size, bool)
    twin[by_value[behind]] = True
    return np.concatenate((by_value[~behind], by_value[behind])), twin
