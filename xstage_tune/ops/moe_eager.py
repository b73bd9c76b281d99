"""Queueing a MoE call now: what its tensors have to be, and the layer that is kept for them."""

from __future__ import annotations

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
    from cuda.core import Stream

    from xstage_tune.cuda.moe_layer import LayerInputs, LayerWeights

    torch = import_torch()
    if not isinstance(group, ProcessGroup):
        raise UsageError(
            f"the group is of type {type(group).__name__}", "give a process group that this rank is in"
        )
    given = {
        "tokens": tokens, "topk_ids": topk_ids, "topk_weights": topk_weights, "weights1": weights1,
        "weights2": weights2, "scales1": scales1, "scales2": scales2, "token_scales": token_scales,
    }  # fmt: skip
    present = {name: tensor for name, tensor in given.items() if tensor is not None}
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in present.values()):
        raise no_gradient("layer")
    shape = _checked(present, group, max_tokens, max_rows)
    checked_timeout(timeout_s)
    with torch.cuda.device(tokens.device):
        calls = torch_calls()
        device = calls.current_device()
        layer = _layer(group, device, shape, config)
        count = int(tokens.shape[0])
        size = (count, shape.hidden)
        result = calls.empty(size, (shape.hidden, 1), torch.bfloat16) if out is None else out
        if out is not None:
            _check_out(out, size, tokens)
        inputs = LayerInputs(
            tokens=tokens.data_ptr(),
            token_scales=_address(token_scales),
            choices=topk_ids.data_ptr(),
            choice_bytes=_CHOICES[_dtype(topk_ids)],
            weights=topk_weights.data_ptr(),
            output=result.data_ptr(),
            count=count,
        )
        weights = LayerWeights(weights1.data_ptr(), weights2.data_ptr(), _address(scales1), _address(scales2))
        stream = calls.current_stream(device)
        ordered = layer.ordered
        with ordered.lock:
            ordered.enter(stream, capturing=calls.capturing())
            ordered.exchange.queue(weights, inputs, Stream.from_handle(stream), timeout_s)
    return result


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
    if not _is_contiguous(tensor) or tensor.data_ptr() % _ALIGNMENT:
        raise UsageError(
            f"{name} has strides {list(tensor.stride())}, at {tensor.data_ptr():#x}",
            f"pass {name}.contiguous(), aligned to {_ALIGNMENT} bytes",
        )


def _check_out(out: Any, size: tuple[int, int], tokens: Tensor) -> None:
    fits = tuple(out.shape) == size and _dtype(out) == "bfloat16" and out.device == tokens.device
    if not fits or not _is_contiguous(out) or out.data_ptr() % _ALIGNMENT:
        raise UsageError(
            f"out is {out.dtype} {list(out.shape)} on {out.device}",
            f"give contiguous bfloat16 {list(size)} on {tokens.device}, aligned to {_ALIGNMENT} bytes",
        )


def _is_contiguous(tensor: Tensor) -> bool:
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
