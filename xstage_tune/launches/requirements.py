"""What must hold of a device, a path and a platform before anything runs."""

from __future__ import annotations

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.gpu_identity import identity_of
from xstage_tune.platforms.gpus import compare
from xstage_tune.platforms.schema import PlatformProfile


def require_path(device: DeviceDescription, path: StorePath) -> None:
    """Refuse a path that the device lacks.

    Raises:
        DeviceError: says which paths it has.
    """
    if path not in device.paths:
        raise DeviceError(
            f"{device.name} has no path '{path}' (it has {', '.join(device.paths)})",
            "xstage-tune doctor says what each path needs",
        )


def require_device(
    device: DeviceDescription, platform: PlatformProfile, path: StorePath, *, force: bool = False
) -> str:
    """Refuse a platform that was calibrated on another GPU, and a path that the device lacks.

    Args:
        force: go on with another GPU's platform, if it has as many SMs.

    Returns:
        how the two GPUs differ, in words; empty where they do not.

    Raises:
        UsageError: the platform is of another GPU.
        DeviceError: the device lacks the path.
    """
    flag = f" --path {path}" if path != "local" else ""
    calibrate = f"give the --platform that was calibrated on it; to calibrate it: xstage-tune calibrate{flag}"
    if device.sm_count != platform.gpu.sm_count:
        raise UsageError(
            f"platform '{platform.name}' is of a GPU with {platform.gpu.sm_count} SMs, "
            f"{device.name} has {device.sm_count}",
            calibrate,
        )
    found = compare(platform.gpu.identity, identity_of(device), path)
    if not found.same and not force:
        raise UsageError(
            f"platform '{platform.name}' was calibrated on another GPU: {found.words()}",
            f"{calibrate}; --force goes on, and marks the result",
        )
    require_path(device, path)
    return found.words()


def require_platform_path(platform: PlatformProfile, path: StorePath) -> None:
    """Refuse a path that the platform does not speak of, but for the control ``local``.

    Raises:
        UsageError: says how to calibrate it.
    """
    if path not in (platform.path, "local"):
        raise UsageError(
            f"platform '{platform.name}' was calibrated for path '{platform.path}', not '{path}'",
            f"calibrate it: xstage-tune calibrate --path {path}; or give its --platform",
        )
