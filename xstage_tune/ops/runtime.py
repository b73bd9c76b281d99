"""torch, imported where it is first needed, and the kernel in the context of torch's GPU."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.defaults import default_attention_config, known_tiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuda.core import Device, Stream

    from xstage_tune.cuda.attention_kernel import AttentionA2A
    from xstage_tune.cuda.attention_shape import AttentionShape
    from xstage_tune.ops.tensors import Tensor

_LOG = logging.getLogger(__name__)


def import_torch() -> Any:
    """The module ``torch``.

    Raises:
        DeviceError: torch is not installed.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise DeviceError(f"torch is not available: {error}", "install it as its own site says") from None


class TorchCalls(NamedTuple):
    """What a call asks of torch.

    Args:
        empty: size, strides and dtype to a new tensor on the current GPU.
        current_device: number of the current GPU.
        current_stream: a GPU's number to the handle of its current stream.
        capturing: whether that is being captured.
    """

    empty: Callable[[tuple[int, ...], tuple[int, ...], Any], Any]
    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    capturing: Callable[[], bool]


def torch_calls() -> TorchCalls:
    """What the code that torch generates calls, a fraction of the cost of the public functions; else those.

    Nobody promises that another torch has it.
    """
    torch = import_torch()
    try:
        return TorchCalls(
            torch._C._dynamo.guards._empty_strided_cuda,
            torch._C._cuda_getDevice,
            torch._C._cuda_getCurrentRawStream,
            torch._C._cuda_isCurrentStreamCapturing,
        )
    except AttributeError:
        return TorchCalls(
            lambda size, strides, dtype: torch.empty_strided(size, strides, dtype=dtype, device="cuda"),
            torch.cuda.current_device,
            lambda device: torch.cuda.current_stream(device).cuda_stream,
            torch.cuda.is_current_stream_capturing,
        )


def tensors_like(*tensors: Tensor) -> Callable[..., bool]:
    """Whether as many tensors are like these in all but place and contents, and none requires a gradient.

    By the check that guards the code that torch compiles, where this torch has it: all in one call.
    """
    torch = import_torch()
    try:
        guards = torch._C._dynamo.guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
        )
        if guards.check(*tensors):
            return guards.check  # type: ignore[no-any-return]
    except (AttributeError, TypeError):
        pass
    traits = [_traits(tensor) for tensor in tensors]

    def alike(*others: Tensor) -> bool:
        gradients = torch.is_grad_enabled() and any(other.requires_grad for other in others)
        return not gradients and [_traits(other) for other in others] == traits

    return alike


def _traits(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


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


@cache
def kernel_for(
    device: int,
    shape: AttentionShape,
    config: AttentionConfig | None,
    softmax_scale: float | None,
    write_lse: bool = False,
) -> AttentionA2A:
    """A variant compiled and loaded on torch's current GPU ``device``: once, since CUDA graphs may hold it.

    Args:
        config: None for the default, or where this compiler makes no usable kernel of it the first of the
            known tiles of which it does; that is logged.

    Raises:
        UsageError: the kernel has no such variant, it is not usable, or a graph is being captured.
        DeviceError: the GPU is no Hopper, or there is no compiler.
    """
    from xstage_tune.cuda.attention_kernel import AttentionA2A
    from xstage_tune.cuda.compiler import UnusableKernelError

    torch = import_torch()
    if torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "this shape and config are not compiled yet, and a graph is being captured",
            "call attention_a2a once before the capture",
        )
    if config is not None:
        return AttentionA2A(current_gpu(), shape, config, softmax_scale=softmax_scale, write_lse=write_lse)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    chosen = default_attention_config(shape.tokens, shape.heads, sms)
    for tile in (chosen, *known_tiles()):
        try:
            return AttentionA2A(current_gpu(), shape, tile, softmax_scale=softmax_scale, write_lse=write_lse)
        except UnusableKernelError as error:
            _LOG.warning("%s; the next known tile takes its place", error.message)
            unusable = error
    raise unusable
