"""Checks of the driver, the GPUs, and each path of remote stores."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

from xstage_tune.base.errors import DeviceError, XStageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.compiler import nvrtc_version
from xstage_tune.cuda.nvml import (
    GpuInfo,
    GpuMonitor,
    PeerStatus,
    driver_cuda_version,
    driver_version,
)
from xstage_tune.doctor.report import Check
from xstage_tune.launches.bursts import BurstPoint
from xstage_tune.launches.device import Device, GpuState, throttling

#: Order in which a failure of one path explains that of the next.
CHECKED_PATHS: tuple[StorePath, ...] = ("local", "host", "peer")

#: Oldest driver branch of a CUDA major version.
_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_UNKNOWN = "not known"


def check_driver() -> Iterator[Check]:
    """The driver against the compiler.

    The rule: a cubin of NVRTC N.x runs on every driver of CUDA N.0 or later, on GPUs of its architecture.
    """
    version, supported = driver_version(), driver_cuda_version()
    if version is None:
        yield Check(
            "driver",
            "not-run",
            "no NVIDIA driver answers",
            "install the driver; in a container, pass the GPU in (docker run --gpus all)",
        )
        return
    cuda = f"CUDA {supported[0]}.{supported[1]}" if supported else "CUDA version not known"
    try:
        nvrtc = nvrtc_version()
    except DeviceError as error:
        yield Check("driver", "warn", f"driver {version} ({cuda}), no compiler to compare with", error.hint)
        return
    rule = f"code of NVRTC {nvrtc[0]}.{nvrtc[1]} runs on drivers of CUDA {nvrtc[0]}.0 or later"
    if nvrtc[0] in _OLDEST_DRIVER:
        rule += f", that is {_OLDEST_DRIVER[nvrtc[0]]} or later"
    if supported is not None and supported[0] < nvrtc[0]:
        advice = f"update the driver, or use the packages of its CUDA: cuda-core[cu{supported[0]}]"
        yield Check("driver", "fail", f"driver {version} ({cuda}) is too old: {rule}", advice)
    else:
        yield Check("driver", "ok", f"driver {version} ({cuda}); {rule}")


def check_gpus(monitors: Sequence[GpuMonitor]) -> Iterator[Check]:
    """Every GPU of the machine, its clocks now, and access among them."""
    if not monitors:
        yield Check("gpus", "not-run", "no GPU found", "use --device replay")
        return
    if hidden := os.environ.get("CUDA_VISIBLE_DEVICES"):
        seen = f"CUDA_VISIBLE_DEVICES={hidden} hides and renumbers GPUs; the numbers below are the machine's"
        yield Check("gpus", "ok", seen)
    for number, monitor in enumerate(monitors):
        info = monitor.info()
        yield _gpu(number, info)
        yield _clocks(number, info, monitor.state())
    yield _topology(monitors)


def _gpu(number: int, info: GpuInfo) -> Check:
    capability = ".".join(map(str, info.compute_capability)) if info.compute_capability else _UNKNOWN
    memory = f"{info.memory_bytes / 2**30:.1f} GiB" if info.memory_bytes else "memory not known"
    seen = f"{info.name or 'a GPU'}, compute capability {capability}, {memory}, {_links(info)}"
    if info.mig_enabled:
        advice = f"a slice has no peer path and its own share of the drain; nvidia-smi -i {number} -mig 0"
        return Check(f"gpu.{number}", "warn", f"{seen}, MIG on", advice)
    if info.mps_processes:
        advice = "stop the other processes: they take SMs and drain"
        return Check(
            f"gpu.{number}", "warn", f"{seen}, {info.mps_processes} processes share it by MPS", advice
        )
    mig = "MIG not known" if info.mig_enabled is None else "MIG off"
    return Check(f"gpu.{number}", "ok", f"{seen}, {mig}")


def _links(info: GpuInfo) -> str:
    pcie, rate = info.pcie, info.pcie.max_bytes_per_s
    text = "PCIe not known"
    if rate is not None:
        text = f"PCIe Gen{pcie.max_generation} x{pcie.max_width} ({rate / 1e9:.1f} GB/s one way)"
    if info.nvlinks.active:
        nvlink = info.nvlinks.bytes_per_s
        text += f", {info.nvlinks.active} NVLinks" + (f" ({nvlink / 1e9:.0f} GB/s one way)" if nvlink else "")
    return text


def _clocks(number: int, info: GpuInfo, state: GpuState | None) -> Check:
    if state is None or state.sm_clock_mhz is None:
        return Check(
            f"clocks.{number}", "not-run", "NVML gives no clocks here (virtual machine or container)"
        )
    limit = f" of {info.power_limit_watts:.0f} W" if info.power_limit_watts else ""
    reasons = ", ".join(state.throttle_reasons) or "no clock events"
    seen = (
        f"SM {_known(state.sm_clock_mhz)} MHz of {_known(info.max_sm_clock_mhz)}, "
        f"memory {_known(state.memory_clock_mhz)} MHz, {_known(state.power_watts)} W{limit}, "
        f"{_known(state.temperature_c)} C, {reasons}"
    )
    if throttling(state.throttle_reasons):
        return Check(
            f"clocks.{number}", "warn", seen, "let the GPU cool, or raise its power limit, before measuring"
        )
    return Check(f"clocks.{number}", "ok", seen)


def _known(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}"


def _topology(monitors: Sequence[GpuMonitor]) -> Check:
    if len(monitors) == 1:
        return Check("topology", "not-run", "one GPU only: there is no peer path")
    statuses = {
        (source, target): monitors[source].peer_status(monitors[target])
        for source, target in permutations(range(len(monitors)), 2)
    }
    counted = Counter(map(_describe, statuses.values()))
    seen = "; ".join(f"{count} of {len(statuses)} directed pairs: {text}" for text, count in counted.items())
    blocked = [
        f"{source} to {target}" for (source, target), status in statuses.items() if status.write != "ok"
    ]
    if blocked:
        return Check(
            "topology", "warn", f"{seen}; no stores from GPU {', '.join(blocked)}", "use --path host there"
        )
    return Check("topology", "ok", seen)


def _describe(status: PeerStatus) -> str:
    answers = (("read", status.read), ("write", status.write), ("NVLink", status.nvlink))
    return ", ".join(f"{access} {answer or _UNKNOWN}" for access, answer in answers)


def check_paths(device: Device) -> Iterator[Check]:
    """A small transfer over each path, compared by the memory's owner."""
    for path in CHECKED_PATHS:
        yield _path(device, path)


def _path(device: Device, path: StorePath) -> Check:
    name = f"path.{path}"
    point = BurstPoint(
        "periodic", path, "st.v4", producers=4, burst_bytes=4096, gap_ns=2_000, window_ns=200_000
    )
    try:
        (run,) = device.run([point])
    except XStageError as error:
        if path == "peer" and "peer" not in device.describe().paths:
            return Check(name, "not-run", error.message, error.hint)
        seen = f"{error.message} ({memory_limits()})" if path == "host" else error.message
        advice = (
            "raise the limits on pinned memory (docker run --ulimit memlock=-1)"
            if path == "host"
            else error.hint
        )
        return Check(name, "error", seen, advice)
    checked, wrong = run.verification.checked_bytes, run.verification.mismatched_bytes
    if wrong or not checked:
        seen = f"{wrong} of {checked} bytes arrived wrong"
        return Check(name, "fail", seen + (f"; {iommu()}" if path != "local" else ""), _WRONG_DATA[path])
    return Check(name, "ok", f"{checked} bytes stored by the GPU were read back right by their owner")


_WRONG_DATA: dict[StorePath, str] = {
    "local": "the GPU or its driver is broken: run dcgmi diag -r 3",
    "host": "the platform does not keep mapped host memory coherent: update firmware and driver",
    "peer": "turn the IOMMU to pass-through (iommu=pt) and PCIe ACS off, or use --path host",
}


def memory_limits() -> str:
    """Limits on locked memory and on this container's memory, as text."""
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return f"locked memory: {_limit(locked)}, container memory: {_limit(cgroup_limit_bytes())}"


def _limit(count: int) -> str:
    return "unlimited" if count < 0 or count >= 1 << 60 else f"{count} bytes"


def cgroup_limit_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory limit of the control group of this process in bytes, version 2 or 1; -1 for none."""
    for file in (root / "memory.max", root / "memory/memory.limit_in_bytes"):
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else -1
    return -1


def iommu(root: Path = Path("/sys/class/iommu")) -> str:
    """Whether the kernel runs an IOMMU, as text."""
    return "an IOMMU is active" if root.is_dir() and any(root.iterdir()) else "no IOMMU is active"
