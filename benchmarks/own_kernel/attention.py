"""What measures ``space.toml``: the tool's own bench of the fused attention, or a space that it recorded."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from xstage_tune.base.errors import XStageError
from xstage_tune.devices.opener import open_fused_kernels
from xstage_tune.devices.recorded_kernels import ReplayedKernels
from xstage_tune.families.attention_a2a.family import FAMILY
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.family import BoundFamily
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.launches.device import Device
from xstage_tune.launches.recording import recording_file
from xstage_tune.platforms.loader import load_platform

DEVICE = os.environ.get("XSTAGE_OWN_DEVICE", "cuda")
SIZES = ("tokens", "degree", "heads", "head_dim")
PLATFORM = os.environ.get("XSTAGE_OWN_PLATFORM", "h200-host")


def workload(keys: dict[str, Any]) -> AttentionWorkload:
    sizes = {name: keys[name] for name in SIZES}
    return AttentionWorkload(name="fa-a2a/paper", **sizes)


@cache
def device() -> Device:
    kind, _, name = DEVICE.partition(":")
    return (
        ReplayedKernels(recording_file(name, "search"))
        if kind == "replay"
        else open_fused_kernels("attention", name)
    )


@cache
def bound(keys: tuple[tuple[str, Any], ...]) -> BoundFamily[Any, Any]:
    return FAMILY.bind(workload(dict(keys)), load_platform(PLATFORM))


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """The output is checked before it is timed; a wrong one is raised as such."""
    config = FAMILY.config_of(asked["config"])
    launch = KernelLaunch(
        _as_recorded(workload(asked["keys"])),
        config,
        load_platform(PLATFORM).path,
        asked["repeats"],
        inputs=asked["seed"],
    )
    try:
        (outcome,) = device().run([launch])
    except XStageError as error:
        told = error.fault if error.fault in ("compile", "unusable", "incorrect") else "launch"
        return {"error": error.message, "fault": told}
    return {"times": list(outcome.figures.latency_ns), "correct": True}


def _as_recorded(asked: AttentionWorkload) -> AttentionWorkload:
    """With the name and the words of what was recorded, by which a recording knows it."""
    running = device()
    if not isinstance(running, ReplayedKernels):
        return asked
    recorded = AttentionWorkload.model_validate(running._recording.manifest.request["workload"])
    return recorded.model_copy(update=asked.model_dump(include=set(SIZES)))


def bursts(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What is known before a kernel is written: the tiles of a round, and the Q-loop between their bursts."""
    keys = {name: asked[name] for name in SIZES}
    family, config = bound(tuple(keys.items())), FAMILY.config_of(asked["config"])
    estimate = family.estimate(config)
    prediction, burst = estimate.schedules[estimate.audited], estimate.burst
    full, left = divmod(family.tiles(config), burst.producers)
    rounds = [(burst.producers, full), (left, 1)]  # the last one has the tiles that are left
    return [
        {
            "burst_bytes": round(burst.burst_bytes.value),
            "producers": producers,
            "gap_ns": prediction.gap_ns.value,
            "rounds": count,
            "stores": config.store_flavour,
        }
        for producers, count in rounds
        if producers and count
    ]
