"""Which platform a command rests on, with the GPU that it runs on or that this machine has."""

from __future__ import annotations

from collections.abc import Callable

from xstage_tune.base.fabric import StorePath
from xstage_tune.devices.present_gpu import present_gpu
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.gpu_identity import identity_of
from xstage_tune.launches.requirements import require_device
from xstage_tune.platforms.choice import chosen_platform
from xstage_tune.platforms.schema import PlatformProfile


def choose_platform(
    name_or_path: str | None,
    notify: Callable[[str], None],
    *,
    device: DeviceDescription | None = None,
    path: StorePath | None = None,
) -> PlatformProfile:
    """The platform of a command, by the one rule of :mod:`xstage_tune.platforms.choice`.

    Args:
        name_or_path: what the user named, if anything.
        notify: is told which was taken, and why, if none was named.
        device: the GPU that the command runs on; None where it only predicts, for the GPU that is present.
        path: as asked for; ``local``, the control, is of any platform.

    Raises:
        UsageError: there is no such profile; or none was named and not exactly one of the user's own fits.
    """
    if name_or_path is not None:
        return chosen_platform(name_or_path).profile
    preferred: StorePath | None = None
    if device is not None:
        preferred = "peer" if "peer" in device.paths else "host"
    chosen = chosen_platform(
        None,
        present=identity_of(device) if device is not None else present_gpu(),
        path=None if path == "local" else path,
        preferred=preferred,
    )
    notify(chosen.why)
    return chosen.profile


def accept_gpu(
    device: DeviceDescription, platform: PlatformProfile, path: StorePath, notify: Callable[[str], None]
) -> str:
    """How a GPU differs from the one that a platform was calibrated on, which ``--force`` accepts.

    Args:
        notify: is told of the difference, if there is one.

    Raises:
        UsageError: they have different numbers of SMs, for which launches are laid out.
        DeviceError: the device lacks the path.
    """
    other = require_device(device, platform, path, force=True)
    if other:
        notify(f"platform '{platform.name}' was calibrated on another GPU: {other}; results are marked so")
    return other
