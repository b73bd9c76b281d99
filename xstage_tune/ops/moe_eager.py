"""Queueing a MoE call now: what its tensors have to be, and the layer that is kept for them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.defaults import lead_rows_of
from xstage_tune.ops.collective import ProcessGroup
from xstage_tune.ops.launching import checked_timeout
from xstage_tune.ops.moe_group import LAYERS, GroupLayer, GroupLayers
from xstage_tune.ops.runtime import import_torch, torch_calls
from xstage_tune.ops.tensors import Tensor, no_gradient

if TYPE_CHECKING:
    from xstage_tune.cuda.moe_routing import RoutedShape
    from xstage_tune.families.megamoe.workload import Precision

_ALIGNMENT = 16
_BLOCK = 128
#: What a schedule's parameter may be found from beforehand: the others' follows from the routing.
_SCHEDULES = ("wave", "interleaved")
_CHOICES = {"int32": 4, "int64": 8}
#: Of a call's tensors, in their order; the last three may be None.
_NAMES = (
    "tokens", "topk_ids", "topk_weights", "weights1", "weights2", "scales1", "scales2", "token_scales",
)  # fmt: skip

Tensors = tuple[Tensor | None, ...]


def compute(
    tokens: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    weights1: Tensor,
    weights2: Tensor,
    scales1: Tensor | None,
    scales2: Tensor | None,
    token_scales: Tensor | None,
    group: ProcessGroup,
    max_tokens: int,
    max_rows: int | None,
    config: MegaMoeConfig | None,
    timeout_s: float,
    out: Any,
) -> Any:
    """:func:`~xstage_tune.ops.moe.mega_moe` outside of a compiler."""
    torch = import_torch()
    tensors = (tokens, topk_ids, topk_weights, weights1, weights2, scales1, scales2, token_scales)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors):
        raise no_gradient("layer")
    # Of the config the id, since hashing its fields takes longer than all of this; a call keeps its config.
    key = (id(config), max_tokens, max_rows, *map(_layout, tensors))
    layers = LAYERS.get(group) if isinstance(group, Hashable) else None
    call = None if layers is None else layers.calls.get(key)
    if call is None:
        call = _made(tensors, group, max_tokens, max_rows, config)
        LAYERS[group].keep(key, call)
    queued: Any = call.queue(tensors, timeout_s, out)
    return queued


class MoeCall:
    """Calls of one layer with tensors of one layout, ready to be queued.

    Args:
        device: number of the GPU.
        config: as it was given.
        count: of tokens.
        choice_bytes: of each of ``topk_ids``.
    """

    def __init__(
        self,
        layer: GroupLayer,
        device: int,
        config: MegaMoeConfig | None,
        count: int,
        choice_bytes: int,
    ) -> None:
        torch = import_torch()
        self._config = config  # so that nothing else gets its id
        self._layer, self._device = layer, device
        self._count, self._choice_bytes = count, choice_bytes
        self._size = (count, layer.shape.hidden)
        self._strides = (layer.shape.hidden, 1)
        self._bf16, self._on_gpu = torch.bfloat16, torch.cuda.device
        self._empty, self._current_device, self._current_stream, self._capturing = torch_calls()

    def queue(self, tensors: Tensors, timeout_s: float, out: Any) -> Any:
        """Queue a call on torch's current stream; what it returns is complete behind it there.

        Raises:
            UsageError: an address is misaligned, ``out`` does not fit, or the timeout is no time.
            DeviceError: an earlier call had a fault.
        """
        if self._current_device() != self._device:
            with self._on_gpu(self._device):
                return self.queue(tensors, timeout_s, out)
        from cuda.core import Stream

        from xstage_tune.cuda.moe_layer import LayerInputs, LayerWeights

        checked_timeout(timeout_s)
        places = [0 if one is None else one.data_ptr() for one in tensors]
        for name, place in zip(_NAMES, places, strict=True):
            if place % _ALIGNMENT:
                raise UsageError(f"{name} is at {place:#x}", f"align it to {_ALIGNMENT} bytes")
        tokens, choices, router, weights1, weights2, scales1, scales2, token_scales = places
        if out is None:
            out = self._empty(self._size, self._strides, self._bf16)
        else:
            self._check_out(out)
        inputs = LayerInputs(
            tokens, token_scales, choices, self._choice_bytes, router, out.data_ptr(), self._count
        )
        weights = LayerWeights(weights1, weights2, scales1, scales2)
        stream, capturing = self._current_stream(self._device), self._capturing()
        ordered = self._layer.ordered
        with ordered.lock:
            if capturing or stream != ordered.stream or ordered.exchange.raised.value:
                ordered.enter(stream, capturing=capturing)
            ordered.exchange.queue(weights, inputs, Stream.from_handle(stream), timeout_s)
        return out

    def _check_out(self, out: Any) -> None:
        fits = tuple(out.shape) == self._size and out.dtype == self._bf16 and out.is_cuda
        placed = fits and out.device.index == self._device and not out.data_ptr() % _ALIGNMENT
        if not placed or not _is_contiguous(out):
            raise UsageError(
                f"out is {out.dtype} {list(out.shape)} on {out.device}",
                f"give contiguous bfloat16 {list(self._size)} on cuda:{self._device}, aligned to "
                f"{_ALIGNMENT} bytes",
            )


def _made(
    tensors: Tensors,
    group: ProcessGroup,
    max_tokens: int,
    max_rows: int | None,
    config: MegaMoeConfig | None,
) -> MoeCall:
    """A call for tensors of these layouts; the first of a layer waits for all ranks."""
    if not isinstance(group, ProcessGroup):
        raise UsageError(
            f"the group is of type {type(group).__name__}", "give a process group that this rank is in"
        )
    given = {name: tensor for name, tensor in zip(_NAMES, tensors, strict=True) if tensor is not None}
    shape = _checked(given, group, max_tokens, max_rows)
    tokens, choices = given["tokens"], given["topk_ids"]
    torch = import_torch()
    with torch.cuda.device(tokens.device):
        device = torch.cuda.current_device()
        layer = _layer(group, device, shape, config)
        return MoeCall(layer, device, config, int(tokens.shape[0]), _CHOICES[_dtype(choices)])


def _layout(tensor: Tensor | None) -> object:
    """All of a tensor that a call depends on, but where it is in memory."""
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def default_moe_config(precision: Precision, hidden: int, intermediate: int, sms: int) -> MegaMoeConfig:
    """The widest tile that is built, and Algorithm 1 with its usual lead.

    Args:
        sms: of the GPU.
    """
    from xstage_tune.cuda.moe_variants import SHIPPED

    tile = SHIPPED[precision][0]
    lead = lead_rows_of(block_n=tile.block_n, hidden=hidden, intermediate=intermediate, sms=sms)
    return tile.model_copy(update={"schedule": Schedule(kind="interleaved", lead_rows=lead)})


def _layer(group: ProcessGroup, device: int, shape: RoutedShape, config: MegaMoeConfig | None) -> GroupLayer:
    if config is None:
        sms = import_torch().cuda.get_device_properties(device).multi_processor_count
        config = default_moe_config(shape.precision, shape.hidden, shape.intermediate, sms)
    if config.schedule.kind not in _SCHEDULES:
        raise UsageError(
            f"schedule '{config.schedule.kind}' follows from the routing, which only the GPU knows",
            f"choose {' or '.join(_SCHEDULES)}",
        )
    return LAYERS.setdefault(group, GroupLayers(group, device)).layer(shape, config)


def _checked(
    given: dict[str, Tensor], group: ProcessGroup, max_tokens: int, max_rows: int | None
) -> RoutedShape:
    """The layer's sizes, before a GPU is needed."""
    from xstage_tune.cuda.moe_routing import RoutedShape

    tokens, weights1 = given["tokens"], given["weights1"]
    precision: Precision = "w8a8" if _dtype(weights1) == "float8_e4m3fn" else "bf16"
    scaled = precision == "w8a8"
    element = "float8_e4m3fn" if scaled else "bfloat16"
    for name, dimensions in {"tokens": 2, "topk_ids": 2, "weights1": 3, "weights2": 3}.items():
        if len(given[name].shape) != dimensions:
            raise UsageError(
                f"{name} has shape {list(given[name].shape)}", f"give it {dimensions} dimensions"
            )
    count, hidden = (int(size) for size in tokens.shape)
    local, columns, _ = (int(size) for size in weights1.shape)
    intermediate, top_k = columns // 2, int(given["topk_ids"].shape[1])
    quantised = scaled and _dtype(tokens) == element
    blocks1, blocks2 = -(-hidden // _BLOCK), -(-intermediate // _BLOCK)
    expected: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
        "tokens": ((count, hidden), (element,) if quantised else ("bfloat16",)),
        "topk_ids": ((count, top_k), tuple(_CHOICES)),
        "topk_weights": ((count, top_k), ("float32",)),
        "weights1": ((local, 2 * intermediate, hidden), (element,)),
        "weights2": ((local, hidden, intermediate), (element,)),
    }
    if scaled:
        if intermediate % _BLOCK:
            raise UsageError(
                f"intermediate = {intermediate}: a block of scales would be of gate and of up",
                f"pad it to a multiple of {_BLOCK}",
            )
        expected |= {
            "scales1": ((local, 2 * blocks2, blocks1), ("float32",)),
            "scales2": ((local, blocks1, blocks2), ("float32",)),
        }
    if quantised:
        expected["token_scales"] = ((count, blocks1), ("float32",))
    for name in expected.keys() - given.keys():
        raise UsageError(f"{name} is missing", f"numbers in {element} have scales in fp32")
    for name in given.keys() - expected.keys():
        raise UsageError(f"{name} is given, and what it would be of has none", "leave it out")
    for name, (size, dtypes) in expected.items():
        _check(name, given[name], size, dtypes, tokens)
    if count > max_tokens:
        raise UsageError(f"{count} tokens, and max_tokens = {max_tokens}", "raise it, on all ranks")
    ranks = group.size()
    return RoutedShape(
        hidden, intermediate, local * ranks, top_k, ranks, group.rank(), max_tokens, precision, max_rows
    )


def _check(name: str, tensor: Tensor, size: tuple[int, ...], dtypes: tuple[str, ...], tokens: Tensor) -> None:
    if tuple(tensor.shape) != size or _dtype(tensor) not in dtypes:
        raise UsageError(
            f"{name} is {_dtype(tensor)} {list(tensor.shape)}", f"give {' or '.join(dtypes)} {list(size)}"
        )
    if not tensor.is_cuda or tensor.device != tokens.device:
        raise UsageError(f"{name} is on {tensor.device}", "put all tensors on this rank's GPU")
    if not _is_contiguous(tensor):
        raise UsageError(f"{name} has strides {list(tensor.stride())}", f"pass {name}.contiguous()")


def _is_contiguous(tensor: Tensor) -> bool:
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
