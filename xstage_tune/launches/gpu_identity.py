"""Which GPU a device is."""

from __future__ import annotations

import re

from xstage_tune.launches.device import DeviceDescription
from xstage_tune.platforms.gpus import form_factor_of
from xstage_tune.platforms.identity import GpuIdentity, GpuLink, is_slice_name

_PCIE = re.compile(r"Gen(\d+) x(\d+)")


def identity_of(device: DeviceDescription) -> GpuIdentity:
    """The GPU of a device that was opened, recorded or simulated."""
    pcie = _PCIE.fullmatch(str(device.link.get("pcie", "")))
    return GpuIdentity(
        name=device.name,
        form_factor=form_factor_of(device.name),
        sm_count=device.sm_count,
        memory_bytes=device.memory_bytes or None,
        nvlink=gpu_link(device.link.get("nvlink_generation"), device.link.get("nvlinks")),
        pcie=GpuLink(generation=int(pcie[1]), count=int(pcie[2])) if pcie else None,
        mig=True if is_slice_name(device.name) else device.mig,
    )


def link_of(gpu: GpuIdentity) -> dict[str, str | int | float]:
    """The links of a GPU as a device describes them: what :func:`identity_of` reads."""
    link: dict[str, str | int | float] = {}
    if gpu.pcie is not None and gpu.pcie.generation is not None and gpu.pcie.count is not None:
        link["pcie"] = f"Gen{gpu.pcie.generation} x{gpu.pcie.count}"
    if gpu.nvlink is not None:
        known = {"nvlink_generation": gpu.nvlink.generation, "nvlinks": gpu.nvlink.count}
        link |= {key: value for key, value in known.items() if value is not None}
    return link


def gpu_link(generation: object, count: object) -> GpuLink | None:
    """A link as far as it is known; None where nothing of it is."""
    known = {"generation": generation, "count": count}
    numbers = {key: value for key, value in known.items() if isinstance(value, int)}
    return GpuLink(**numbers) if numbers else None
