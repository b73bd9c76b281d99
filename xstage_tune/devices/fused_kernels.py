"""The fused kernels that come with the tool, by kind of workload."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from xstage_tune.base.errors import DeviceError
from xstage_tune.families.binding import family_of
from xstage_tune.families.workload import Workload

if TYPE_CHECKING:
    from xstage_tune.cuda.fused_kernel import FusedKernel
    from xstage_tune.cuda.gpu import Gpu
    from xstage_tune.launches.device import Runner

#: Module and class: none is loaded, nor the CUDA packages, before a GPU or the compiler is to be used.
_KERNELS: dict[str, tuple[str, str]] = {
    "attention": ("xstage_tune.cuda.attention_bench", "AttentionKernel"),
    "moe": ("xstage_tune.cuda.moe_bench", "MoeKernel"),
}
#: What runs their profiles.
_PROFILES: dict[str, tuple[str, str]] = {
    "attention": ("xstage_tune.cuda.attention_profiles", "CudaAttentions"),
    "moe": ("xstage_tune.cuda.moe_profiles", "CudaLayers"),
}
_INSTEAD = "use --device emulate (skeletons on a GPU) or simulator"
#: Kinds that have a kernel for some of their workloads only.
_OF_SOME = frozenset({"moe"})


def has_kernel(kind: str, workload: Workload | None = None) -> bool:
    """Whether there is a kernel for a kind of workload.

    Args:
        workload: which of them; None for any, where some that have none make none.
    """
    if workload is None:
        return kind in _KERNELS and kind not in _OF_SOME
    return kind in _KERNELS and bool(family_of(workload).kernel_source_of(workload))


def require_kernel(kind: str, workload: Workload | None = None) -> None:
    """Refuse what has no kernel; see :func:`has_kernel`.

    Raises:
        DeviceError: there is none, or the CUDA packages are missing.
    """
    fused_kernel(kind)
    if not has_kernel(kind, workload):
        of = f"'{workload.name}'" if workload else f"all workloads of kind '{kind}'"
        raise DeviceError(
            f"there is no fused kernel for {of} yet, only for some of that kind",
            f"--set precision=w8a8, or {_INSTEAD}",
        )


def fused_kernel(kind: str) -> FusedKernel:
    """The kernel of a kind of workload.

    Raises:
        DeviceError: there is none, or the CUDA packages are missing.
    """
    if kind not in _KERNELS:
        raise DeviceError(
            f"there is no fused kernel for a workload of kind '{kind}' yet (there is one for: "
            f"{', '.join(_KERNELS)})",
            _INSTEAD,
        )
    return cast("FusedKernel", _loaded(*_KERNELS[kind])())


def profiling_runner(kind: str) -> Callable[[Gpu], Runner]:
    """What runs the profile of a kind of workload on a GPU; of one that has some.

    Raises:
        DeviceError: the CUDA packages are missing.
    """
    return cast("Callable[[Gpu], Runner]", _loaded(*_PROFILES[kind]))


def _loaded(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise DeviceError(
            f"the CUDA packages are not installed ({error.name})", "pip install 'xstage-tune[cuda]'"
        ) from None
