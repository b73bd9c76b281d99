"""torch, imported where it is first needed, and the kernel in the context of torch's GPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import DeviceError
from xstage_tune.families.attention_a2a.config import AttentionConfig

if TYPE_CHECKING:
    from cuda.core import Device, Stream

    from xstage_tune.cuda.attention_kernel import AttentionA2A
    from xstage_tune.cuda.attention_shape import AttentionShape


def import_torch() -> Any:
    """The module ``torch``.

    Raises:
        DeviceError: torch is not installed.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise DeviceError(f"torch is not available: {error}", "install it as its own site says") from None


def current_stream() -> Stream:
    """torch's current stream of its current GPU."""
    from cuda.core import Stream

    return Stream.from_handle(import_torch().cuda.current_stream().cuda_stream)


def current_gpu() -> Device:
    """torch's current GPU, whose context torch has made."""
    from cuda.core import Device

    gpu = Device(import_torch().cuda.current_device())
    gpu.set_current()
    return gpu


def build_kernel(shape: AttentionShape, config: AttentionConfig, softmax_scale: float | None) -> AttentionA2A:
    """A variant compiled and loaded on torch's current GPU, with epochs of its own.

    Raises:
        UsageError: the kernel has no such variant, or it is not usable.
        DeviceError: the GPU is no Hopper, or there is no compiler.
    """
    from xstage_tune.cuda.attention_kernel import AttentionA2A

    return AttentionA2A(current_gpu(), shape, config, softmax_scale=softmax_scale)
