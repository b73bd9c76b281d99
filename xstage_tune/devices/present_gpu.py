"""Which GPU is present, without opening it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from xstage_tune.launches.gpu_identity import gpu_link
from xstage_tune.platforms.gpus import form_factor_of
from xstage_tune.platforms.identity import GpuIdentity, is_slice_name

if TYPE_CHECKING:
    from xstage_tune.cuda.nvml import GpuMonitor

_UUID = ("GPU-", "MIG-")


def present_gpu(environment: Mapping[str, str] = os.environ) -> GpuIdentity | None:
    """The first GPU that a process of this environment sees; None where there is none, or no NVML to ask.

    By NVML alone: no CUDA context is made, and neither torch nor the CUDA packages are loaded. A GPU that is
    cut into MIG slices counts as the slice that CUDA takes: the one named, else its first.

    Args:
        environment: of which ``CUDA_VISIBLE_DEVICES`` hides GPUs and chooses slices.
    """
    try:
        from xstage_tune.cuda.nvml import open_by_uuid, open_monitors
    except ImportError:  # nvidia-ml-py is of the extra: without it nothing is known of any GPU
        return None
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    first = visible.split(",")[0].strip() if visible is not None else "0"
    if first.startswith(_UUID):
        monitor = open_by_uuid(first)
        if monitor is None:
            return None
        with closing(monitor):
            return _identity(monitor)
    if not first.isdecimal():
        return None  # empty, or what CUDA does not understand: it then sees none
    monitors = open_monitors()
    try:
        return _identity(monitors[int(first)]) if int(first) < len(monitors) else None
    finally:
        for one in monitors:
            one.close()


def _identity(monitor: GpuMonitor) -> GpuIdentity | None:
    info = monitor.info()
    mig = True if monitor.is_slice() else info.mig_enabled
    if info.mig_enabled and (part := monitor.slice_of()) is not None:
        info = replace(part.info(), pcie=info.pcie)
    if info.name is None:
        return None
    return GpuIdentity(
        name=info.name,
        form_factor=form_factor_of(info.name),
        sm_count=info.sm_count,
        memory_bytes=info.memory_bytes,
        # A GPU that was lent alone shows none of its NVLinks: none is no answer.
        nvlink=gpu_link(info.nvlinks.generation, info.nvlinks.active or None),
        pcie=gpu_link(info.pcie.max_generation, info.pcie.max_width),
        mig=True if is_slice_name(info.name) else mig,
    )
