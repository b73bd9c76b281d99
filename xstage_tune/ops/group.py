"""Attention whose output goes to the ranks of a torch process group, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops.collective import ProcessGroup, collectively
from xstage_tune.ops.runtime import build_kernel, current_gpu, current_stream, import_torch
from xstage_tune.ops.symmetric import SymmetricBuffers
from xstage_tune.ops.tensors import Tensor

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_shape import AttentionShape

_LONGEST_TIMEOUT_S = 86_400.0


def attend_over_group(
    tensors: tuple[Tensor, Tensor, Tensor],
    group: ProcessGroup,
    shape: AttentionShape,
    config: AttentionConfig,
    softmax_scale: float | None,
    timeout_s: float,
) -> Any:
    """One epoch on torch's current GPU and stream: this rank's tokens, as ``attention_a2a`` returns them.

    Raises:
        UsageError: a graph is being captured, the timeout is no time, or what :class:`Exchange` raises.
        DeviceError: a sender was late for an earlier epoch, or what :class:`Exchange` raises.
    """
    torch = import_torch()
    if torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "attention over a process group cannot be captured into a CUDA graph: "
            "its result alternates between two buffers",
            "capture it with addresses or Destinations of buffers of your own",
        )
    if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
        raise UsageError(
            f"a timeout of {timeout_s} s", f"give more than 0 and at most {_LONGEST_TIMEOUT_S:.0f}"
        )
    exchanges = _EXCHANGES.setdefault(group, {})
    key = _Key(torch.cuda.current_device(), shape, config, softmax_scale)
    if key not in exchanges:
        exchanges[key] = Exchange(group, key)
    return exchanges[key].attend(tensors, timeout_s)


def check_group(group: ProcessGroup) -> None:
    """Wait for this rank's attention over ``group``, and report a rank that was late.

    Raises:
        DeviceError: a rank did not signal an epoch in time, so that its heads are missing in what that call
            returned; names the rank, the epoch, and the last one that it signalled.
    """
    for exchange in _EXCHANGES.get(group, {}).values():
        exchange.check()


def close_group(group: ProcessGroup) -> None:
    """Wait for this rank's attention over ``group``, and free its buffers; the next call makes new ones.

    Every rank does so, after equally many calls, before ``torch.distributed.destroy_process_group``. Safe to
    call twice. Tensors that calls returned keep their memory.
    """
    for exchange in _EXCHANGES.pop(group, {}).values():
        exchange.close()


@dataclass(frozen=True, slots=True)
class _Key:
    """What an exchange is made for: all but the GPU and the rank is equal on all ranks."""

    device: int
    shape: AttentionShape
    config: AttentionConfig
    softmax_scale: float | None


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a rank tells the others of its part."""

    agreed: Mapping[str, object]
    gpu: str


class Exchange:
    """One attention over a group: this rank's kernel, all ranks' buffers, and the epochs that went by.

    In every epoch a rank stores to all, signals all, and waits for all. Two buffers suffice, since who
    launches epoch e + 2 has seen all signals of e + 1, which their senders launched after they had used e.
    After a rank was late nothing is known of the buffers any more, so every later epoch is refused.

    All ranks of the group make it at once.

    Raises:
        UsageError: the ranks disagree, two of them share a GPU, or the kernel has no such variant.
        DeviceError: a GPU is no Hopper, lacks memory or cannot address another's; or another rank failed.
    """

    def __init__(self, group: ProcessGroup, key: _Key) -> None:
        from xstage_tune.cuda.attention_epochs import EpochWaiter

        shape = key.shape
        self._device = key.device
        self._epoch = 0
        with ExitStack() as resources:
            # A rank without a kernel keeps all from allocating, and so does one with another shape.
            offers = collectively(group, lambda: self._take_part(key, resources))
            _check_offers(offers, shape.rank)
            self._buffers = SymmetricBuffers(group, shape)
            self._waiter = EpochWaiter(current_gpu(), self._buffers.words, shape.ranks)
            resources.callback(self._waiter.close)
            self._resources = resources.pop_all()

    def _take_part(self, key: _Key, resources: ExitStack) -> _Offer:
        """Build this rank's kernel; what the others are told of it."""
        shape = key.shape
        self._kernel = build_kernel(shape, key.config, key.softmax_scale)
        resources.callback(self._kernel.close)
        agreed = {
            "tokens": shape.tokens,
            "local heads": shape.heads,
            "head_dim": shape.head_dim,
            "config": key.config.label,
            "softmax scale": key.softmax_scale,
        }
        return _Offer(agreed, str(import_torch().cuda.get_device_properties(key.device).uuid))

    def attend(self, tensors: tuple[Tensor, Tensor, Tensor], timeout_s: float) -> Any:
        """Queue the next epoch on torch's current stream; this rank's tokens, complete behind it.

        Raises:
            UsageError: a tensor is misaligned.
            DeviceError: a sender was late for an earlier epoch.
        """
        self._raise_fault()
        stream = current_stream()
        query, key, value = (tensor.data_ptr() for tensor in tensors)
        self._kernel.launch(self._kernel.prepare(query, key, value, self._buffers.destinations), stream)
        self._epoch += 1
        self._waiter.hold(self._epoch, timeout_s, stream)
        return self._buffers.tokens(self._epoch)

    def check(self) -> None:
        """Wait for the GPU.

        Raises:
            DeviceError: a sender was late.
        """
        import_torch().cuda.synchronize(self._device)
        self._raise_fault()

    def close(self) -> None:
        """Wait for the GPU and free what this rank has, but for buffers that a late sender may store to."""
        torch = import_torch()
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            if self._waiter.fault() is not None:
                _STORED_TO_LATE.append(self._buffers)
            self._resources.close()

    def _raise_fault(self) -> None:
        if (fault := self._waiter.fault()) is not None:
            raise fault


def _check_offers(offers: list[_Offer], rank: int) -> None:
    """Refuse what does not fit together, on every rank or on none."""
    mine = offers[rank].agreed
    for other, offer in enumerate(offers):
        for name, value in mine.items():
            if offer.agreed[name] != value:
                raise UsageError(
                    f"the ranks disagree: {name} is {offer.agreed[name]} on rank {other}, {value} on {rank}",
                    "call attention_a2a with equal shapes, config and softmax scale on all ranks",
                )
    gpus = [offer.gpu for offer in offers]
    for other, gpu in enumerate(gpus):
        if (owner := gpus.index(gpu)) != other:
            raise UsageError(
                f"ranks {owner} and {other} share a GPU",
                "give every rank one of its own: torch.cuda.set_device(local rank)",
            )


#: Of every group, made by the first call and kept until it is closed.
_EXCHANGES: dict[ProcessGroup, dict[_Key, Exchange]] = {}
#: Buffers whose late senders may still store to them: never to be used for anything else.
_STORED_TO_LATE: list[SymmetricBuffers] = []
