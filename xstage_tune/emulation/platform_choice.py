"""Which calibrated platform an emulation's predictions rest on, and which path it runs on."""

from __future__ import annotations

from xstage_tune.calibration.fit import profile_name
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.devices.base import DeviceDescription, StorePath
from xstage_tune.errors import UsageError
from xstage_tune.platforms.loader import list_platforms, load_platform
from xstage_tune.platforms.schema import PlatformProfile

#: What is simulated where no GPU and no platform is named: a shipped one that was measured.
SIMULATED_PLATFORM = "h200-host"


def choose_platform(
    name_or_path: str | None, device: DeviceDescription | None, path: StorePath | None
) -> PlatformProfile:
    """The named platform; else that of this GPU and path; without a GPU, :data:`SIMULATED_PLATFORM`.

    Args:
        device: the GPU; None for the simulator.
        path: as asked for; None, as for the control ``local``, takes the GPU's best path to another owner.

    Raises:
        UsageError: there is no such profile, or none of this GPU.
    """
    if name_or_path is not None:
        return load_platform(name_or_path)
    if device is None:
        return load_platform(SIMULATED_PLATFORM)
    remote: StorePath = "peer" if "peer" in device.paths else "host"
    if path is not None and path != "local":
        remote = path
    name = profile_name(device, CalibrationRequest(remote))
    if name not in list_platforms():
        raise UsageError(
            f"no calibrated platform '{name}' for {device.name} on path '{remote}'",
            f"calibrate it: xstage-tune calibrate --path {remote}; or give --platform",
        )
    return load_platform(name)
