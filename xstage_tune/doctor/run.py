"""``doctor``: run every check, and say what can be done here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.provenance import collect_software
from xstage_tune.cuda.nvml import open_monitors
from xstage_tune.devices.opener import open_cuda, open_replay
from xstage_tune.devices.spec import DOCTOR
from xstage_tune.doctor.gpu import CHECKED_PATHS, check_driver, check_gpus, check_paths
from xstage_tune.doctor.machine import (
    check_compiler,
    check_kernel_cache,
    check_packages,
    check_profiles,
    check_recordings,
    check_store,
)
from xstage_tune.doctor.report import Check, DoctorReport, guarded
from xstage_tune.launches.device import Device, DeviceDescription

#: Architecture of the compile check where there is no GPU.
_REFERENCE_ARCHITECTURE = "sm_90a"


def run_checks(
    device: str = "auto", store_location: str | Path | None = None, argv: Sequence[str] = ()
) -> DoctorReport:
    """Check this machine.

    Args:
        device: ``auto`` (the first GPU if there is one), ``cuda[:N]`` or ``replay[:NAME|FILE]``.
        store_location: file or URL; None for the user's own store.
        argv: the command as it was given, for the report.

    Raises:
        UsageError: ``device`` is none of these, or its recording cannot be read.
    """
    software = collect_software(argv, with_git=True)
    gpu, description, device_check = _open(device)
    architecture = description.architecture if gpu and description else _REFERENCE_ARCHITECTURE
    try:
        checks = (
            *guarded("packages", lambda: check_packages(software)),
            *guarded("compiler", lambda: check_compiler(architecture)),
            *guarded("kernel-cache", check_kernel_cache),
            *guarded("driver", check_driver),
            *guarded("gpus", _check_gpus),
            device_check,
            *guarded("paths", lambda: check_paths(gpu) if gpu else _unchecked_paths()),
            *guarded("store", lambda: check_store(store_location)),
            *guarded("profiles", check_profiles),
            *guarded("recordings", check_recordings),
        )
    finally:
        if gpu:
            gpu.close()
    commands = tuple(_commands(device, checks))
    runnable = not device.startswith("cuda") or any("--device cuda" in command for command in commands)
    return DoctorReport(device, runnable, commands, software, checks)


def _open(spec: str) -> tuple[Device | None, DeviceDescription | None, Check]:
    """The GPU to check (None where ``spec`` gives none), its identity, and the check of its opening."""
    opened = None
    try:
        asked = DOCTOR.parse(spec)
        opened = (
            open_replay(DOCTOR, asked.which) if asked.kind == "replay" else open_cuda(DOCTOR, asked.which)
        )
        description = opened.describe()
    except DeviceError as error:
        if opened:
            opened.close()
        return None, None, Check("device", "not-run" if spec == "auto" else "fail", error.message, error.hint)
    seen = (
        f"{description.name}, {description.architecture}, {description.sm_count} SMs, "
        f"{description.memory_bytes / 2**30:.1f} GiB, UUID {description.uuid}"
    )
    if description.kind == "cuda":
        return opened, description, Check("device", "ok", seen)
    opened.close()
    return None, description, Check("device", "ok", f"recording of {seen}")


def _check_gpus() -> Iterator[Check]:
    monitors = open_monitors()
    try:
        yield from check_gpus(monitors)
    finally:
        for monitor in monitors:
            monitor.close()


def _unchecked_paths() -> Iterator[Check]:
    for path in CHECKED_PATHS:
        yield Check(f"path.{path}", "not-run", "no GPU to store from, as row 'device' says")


def _commands(device: str, checks: Sequence[Check]) -> Iterator[str]:
    """Calibrations that can run here, best first."""
    working = {check.name for check in checks if check.status == "ok"}
    gpu = device if device.startswith("cuda:") else "cuda:0"
    if "path.local" in working:  # the control, which every calibration measures
        for path in ("peer", "host"):
            if f"path.{path}" in working:
                yield f"xstage-tune calibrate --device {gpu} --path {path}"
    for name in sorted(working):
        kind, _, recording = name.partition(".")
        if kind == "recording":
            yield f"xstage-tune calibrate --device replay:{recording}"
