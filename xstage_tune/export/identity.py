"""What an export was made with, beside what it is to run with: GPU, version of the tool, kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xstage_tune.base.errors import UsageError
from xstage_tune.base.version import __version__
from xstage_tune.devices.kernel_identity import kernel_sha256
from xstage_tune.devices.present_gpu import present_gpu
from xstage_tune.export.consistency import is_edited
from xstage_tune.export.record import PlatformIdentity, TunedConfig
from xstage_tune.platforms.gpus import compare, known_gpus
from xstage_tune.platforms.identity import GpuIdentity

#: Of a hash, as far as people compare them.
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences and what could not be compared, in words; both empty where all is the same."""

    differences: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def compare_gpu(platform: PlatformIdentity, gpu: GpuIdentity | None) -> Comparison:
    """The GPU of an export's platform, with the link of its path, beside ``gpu``; None for no GPU."""
    if gpu is None:
        return Comparison(unchecked=("GPU: none is present, or there is no NVML to ask",))
    return _compared_gpus(platform, gpu)


def identified(gpu: GpuIdentity | str | None) -> GpuIdentity | None:
    """A GPU by the driver's name of it, with what is known of the GPU of that name.

    None stands for the GPU that this process sees, which it asks for once; None is the answer where it sees
    none, or cannot ask.

    Raises:
        UsageError: it is neither.
    """
    if gpu is None:
        return _present()
    if not isinstance(gpu, str | GpuIdentity):
        raise UsageError(f"gpu = {gpu!r}: should be the driver's name of a GPU, e.g. 'NVIDIA H200'")
    return _named(gpu) if isinstance(gpu, str) else gpu


def compare_tool(tuned: TunedConfig) -> Comparison:
    """The version and the kernels of an export beside those installed.

    Kernels are those that :func:`~xstage_tune.devices.kernel_identity.kernel_sha256` names: none for a MoE
    layer on the simulator, which then differs by the version alone.
    """
    differences, unchecked = [], []
    by, kernels = tuned.provenance.tool_version, tuned.provenance.kernel_sha256
    installed = kernel_sha256(tuned.workload, emulated=tuned.objective.basis == "emulated")
    if not by:
        unchecked.append("tool: the export does not say which version searched")
    elif by != __version__:
        differences.append(f"tuned by xstage-tune {by}, this is {__version__}")
        if is_edited(tuned):
            differences.append("the workload is not what its hash is of: edited, or hashed by that version")
    if installed and not kernels:
        unchecked.append("kernels: the export does not say which it is for")
    elif installed != kernels:
        installed_are = installed[:_DIGITS] or "not there"
        differences.append(f"tuned for kernels {kernels[:_DIGITS]}, those installed are {installed_are}")
    return Comparison(tuple(differences), tuple(unchecked))


@lru_cache
def _present() -> GpuIdentity | None:
    return present_gpu()


@lru_cache
def _named(name: str) -> GpuIdentity:
    known = (one.gpu for one in known_gpus() if name in one.names)
    return next(known, None) or GpuIdentity(name=name)


@lru_cache(maxsize=64)
def _compared_gpus(platform: PlatformIdentity, gpu: GpuIdentity) -> Comparison:
    found = compare(platform.identity, gpu, platform.path)
    ran_here = found.words() == (platform.other_gpu or "")  # it may have been forced on another than its own
    this = found.words() or f"{gpu.name}, which its platform is of, did not run it"
    differences = () if ran_here else (f"tuned on another GPU: {this}",)
    unknown = (f"GPU: {', '.join(found.unknown)}",) if found.unknown and ran_here else ()
    return Comparison(differences, unknown)
