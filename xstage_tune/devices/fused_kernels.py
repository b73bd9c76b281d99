"""The fused kernels that come with the tool, by kind of workload."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from xstage_tune.base.errors import DeviceError

if TYPE_CHECKING:
    from xstage_tune.cuda.fused_kernel import FusedKernel

#: Module and class: none is loaded, nor the CUDA packages, before a GPU or the compiler is to be used.
_KERNELS: dict[str, tuple[str, str]] = {"attention": ("xstage_tune.cuda.attention_bench", "AttentionKernel")}


def has_kernel(kind: str) -> bool:
    """Whether there is a kernel for a kind of workload."""
    return kind in _KERNELS


def fused_kernel(kind: str) -> FusedKernel:
    """The kernel of a kind of workload.

    Raises:
        DeviceError: there is none, or the CUDA packages are missing.
    """
    if kind not in _KERNELS:
        raise DeviceError(
            f"there is no fused kernel for a workload of kind '{kind}' yet (there is one for: "
            f"{', '.join(_KERNELS)})",
            "use --device emulate (skeletons on a GPU) or simulator",
        )
    module, name = _KERNELS[kind]
    try:
        return cast("FusedKernel", getattr(import_module(module), name)())
    except ImportError as error:
        raise DeviceError(
            f"the CUDA packages are not installed ({error.name})", "pip install 'xstage-tune[cuda]'"
        ) from None
