"""Queueing an attention call now: what its arguments mean, and the call that is kept for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops.collective import ProcessGroup
from xstage_tune.ops.group import group_call
from xstage_tune.ops.launching import CALLS, Call, Key, Ordered, checked_timeout
from xstage_tune.ops.runtime import current_gpu, import_torch, kernel_for
from xstage_tune.ops.tensors import InputLayout, Tensor, input_layout, no_gradient

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_epochs import Exchange
    from xstage_tune.cuda.attention_kernel import PreparedLaunch
    from xstage_tune.cuda.attention_shape import AttentionShape, Destinations


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    destination: Sequence[int] | Destinations | ProcessGroup,
    config: AttentionConfig | None,
    rank: int | None,
    heads: int | None,
    softmax_scale: float | None,
    complete: bool,
    timeout_s: float,
    out: Any,
    lse: Any = None,
) -> Any:
    """:func:`~xstage_tune.ops.attention.attention_a2a` outside of a compiler."""
    if type(destination) is list:
        destination = tuple(destination)
    key: Key = (
        destination, id(config), rank, heads, softmax_scale, complete, lse is None,
        q.data_ptr(), k.data_ptr(), v.data_ptr(),
    )  # fmt: skip
    try:
        calls = CALLS.ready.get(key, ())
    except TypeError:  # addresses in what is no part of a key, or nothing that can be a destination
        addresses = _of_addresses(destination)
        return attend(q, k, v, addresses, config, rank, heads, softmax_scale, complete, timeout_s, out, lse)
    for ready in calls:
        if ready.fits(q, k, v):
            return ready.queue(timeout_s, out, lse)
    _require_no_gradient(q, k, v)
    layout = input_layout(q, k, v)
    shape, of_group = _checked(layout, destination, rank, heads, complete)
    checked_timeout(timeout_s)
    with import_torch().cuda.device(q.device):
        kind = (*key[:-3], q.device, layout)
        if (call := CALLS.kinds.get(kind)) is None:
            if isinstance(of_group, ProcessGroup):
                call = group_call(of_group, shape, layout.strides, config, softmax_scale, lse is not None)
            else:
                call = _address_call(
                    shape, layout, of_group, config, softmax_scale, complete, write_lse=lse is not None
                )
            CALLS.keep_kind(kind, call)
        ready = call.on(q, k, v)
        CALLS.keep_ready(key, ready)
        return ready.queue(timeout_s, out, lse)


def _require_no_gradient(q: Tensor, k: Tensor, v: Tensor) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.is_grad_enabled() and any(one.requires_grad for one in (q, k, v)):
        raise no_gradient("attention")


def _checked(
    layout: InputLayout,
    destination: Sequence[int] | Destinations | ProcessGroup,
    rank: int | None,
    heads: int | None,
    complete: bool,
) -> tuple[AttentionShape, Destinations | ProcessGroup]:
    """What this rank computes and where it goes, before torch or a GPU is needed."""
    from xstage_tune.cuda.attention_shape import AttentionShape, Destinations

    sizes = layout.tokens, layout.heads, layout.head_dim
    if isinstance(destination, ProcessGroup):
        _check_group_arguments(destination, rank, complete)
        group = destination
        return AttentionShape(*sizes, group.size(), group.rank(), layout.kv_tokens, heads), group
    destination = destination if isinstance(destination, Destinations) else _of_addresses(destination)
    shape = AttentionShape(*sizes, len(destination.buffers), rank or 0, layout.kv_tokens, heads)
    destination.check(shape)
    return shape, destination


def _address_call(
    shape: AttentionShape,
    layout: InputLayout,
    destination: Destinations,
    config: AttentionConfig | None,
    softmax_scale: float | None,
    complete: bool,
    *,
    write_lse: bool,
) -> Call:
    device = import_torch().cuda.current_device()
    kernel = kernel_for(device, shape, config, softmax_scale, write_lse)
    ordered = _ordered(destination) if destination.signals else None
    exchange = None if ordered is None else ordered.exchange

    def prepare(places: tuple[int, int, int]) -> PreparedLaunch:
        return kernel.prepare(
            *places, destination, strides=layout.strides, exchange=exchange, complete=complete
        )

    lse = (shape.heads, shape.tokens) if write_lse else None
    return Call(device, config, prepare, ordered, lse=lse)


def _ordered(destination: Destinations) -> Ordered[Exchange]:
    """The exchange of these destinations, from their first call on for good: graphs may hold it."""
    if (ordered := _EXCHANGES.get(destination)) is None:
        from xstage_tune.cuda.attention_epochs import Exchange

        ordered = _EXCHANGES[destination] = Ordered(Exchange(current_gpu()))
    return ordered


def _check_group_arguments(group: ProcessGroup, rank: int | None, complete: bool) -> None:
    if rank is not None and rank != group.rank():
        raise UsageError(
            f"rank {rank} is rank {group.rank()} of the group", "leave rank out: the group knows it"
        )
    if not complete:
        raise UsageError(
            "attention over a process group that does not complete",
            "leave complete out, or give Destinations",
        )


def _of_addresses(addresses: object) -> Destinations:
    from xstage_tune.cuda.attention_shape import Destinations

    if not isinstance(addresses, Sequence):
        raise UsageError(
            f"the destination is of type {type(addresses).__name__}",
            "give one address a rank, Destinations, or a process group that this rank is in",
        )
    return Destinations(tuple(addresses))


_EXCHANGES: WeakKeyDictionary[Destinations, Ordered[Exchange]] = WeakKeyDictionary()
