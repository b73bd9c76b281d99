"""Attention whose output goes to the ranks of a torch process group, epoch by epoch."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops.agreement import Offer, check_offers, gpu_identity
from xstage_tune.ops.collective import ProcessGroup, collectively
from xstage_tune.ops.launching import CALLS, Call, Ordered
from xstage_tune.ops.moe_group import LAYERS
from xstage_tune.ops.runtime import current_gpu, import_torch, kernel_for
from xstage_tune.ops.symmetric import SymmetricBuffers

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_kernel import PreparedLaunch
    from xstage_tune.cuda.attention_maps import InputStrides
    from xstage_tune.cuda.attention_shape import AttentionShape

_GRANULE_BYTES = 256
_DISAGREE = (
    "call attention_a2a with equal shapes, config and softmax scale on all ranks, and lse on all or none"
)
#: A pool that is too small makes place for one at least so many times as large, so that all that graphs hold
#: is at most twice the last.
_GROWTH = 2


def group_call(
    group: ProcessGroup,
    shape: AttentionShape,
    strides: InputStrides,
    config: AttentionConfig | None,
    softmax_scale: float | None,
    write_lse: bool,
) -> Call:
    """Calls of this kind over the group, on torch's current GPU, ready to be queued.

    The first one of a shape, config and scale waits for all ranks.

    Raises:
        UsageError: a graph is being captured and the ranks have to meet first; they disagree, two of them
            share a GPU, or the kernel has no such variant.
        DeviceError: a GPU is no Hopper, lacks memory or cannot address another's; or another rank failed.
    """
    device = import_torch().cuda.current_device()
    attention = _GROUPS.setdefault(group, GroupAttention(group, device))
    return attention.call(shape, strides, config, softmax_scale, write_lse)


def check_group(group: ProcessGroup) -> None:
    """Wait for this rank's calls over ``group``, and report a rank that was late.

    Raises:
        DeviceError: a rank did not signal an epoch in time, so that what that call returned is NaNs; names
            the rank, the epoch, and the last one that it signalled. Or two calls ran at once.
    """
    for calls in (_GROUPS.get(group), LAYERS.get(group)):
        if calls is not None:
            calls.check()


def close_group(group: ProcessGroup) -> None:
    """Wait for this rank's calls over ``group``, and free its buffers; the next call makes new ones.

    Every rank does so, after equally many calls, before ``torch.distributed.destroy_process_group``. Safe to
    call twice. Graphs that captured calls must not be replayed any more.
    """
    CALLS.forget(group)
    for calls in (_GROUPS.pop(group, None), LAYERS.pop(group, None)):
        if calls is not None:
            calls.close()


class _Pool:
    """The buffers of all ranks, and the exchange over them. All ranks make it at once.

    The ranks meet behind the last memory that one of them takes or frees, which may wait for a GPU: where two
    ranks share one, it may wait for a call that waits for this rank.
    """

    def __init__(self, group: ProcessGroup, buffer_bytes: int) -> None:
        with ExitStack() as opened:
            collectively(group, lambda: self._make_exchange(opened))
            self.buffers = SymmetricBuffers(group, buffer_bytes)
            self._opened = opened.pop_all()

    def _make_exchange(self, opened: ExitStack) -> None:
        from xstage_tune.cuda.attention_epochs import Exchange

        exchange = Exchange(current_gpu())
        opened.callback(exchange.close)
        self.ordered = Ordered(exchange)

    def close(self) -> None:
        """Free what this rank has, but for buffers that a late sender may store to; the GPU is idle."""
        if self.ordered.exchange.fault() is not None:
            _STORED_TO_LATE.append(self.buffers)
        self._opened.close()


class GroupAttention:
    """All attention of this rank over one group: what the ranks agreed on, and one pool of buffers.

    In every epoch a rank stores to all, signals all, and receives from all: whatever its shape is, an epoch
    takes the buffer of its parity. A pool that is too small for a new shape makes place for a larger one,
    which begins anew; the old one is kept where graphs may hold it. Before that each rank waits for its GPU:
    all calls before this one are queued on every rank by then, so that none waits for ever.
    """

    def __init__(self, group: ProcessGroup, device: int) -> None:
        self._group = group
        self._device = device
        self._pool: _Pool | None = None
        self._held: list[_Pool] = []
        self._agreed: set[object] = set()

    def call(
        self,
        shape: AttentionShape,
        strides: InputStrides,
        config: AttentionConfig | None,
        softmax_scale: float | None,
        write_lse: bool,
    ) -> Call:
        """See :func:`group_call`."""
        from xstage_tune.cuda.attention_epochs import Receipt

        torch = import_torch()
        if torch.cuda.current_device() != self._device:
            raise UsageError(
                f"tensors on cuda:{torch.cuda.current_device()}, and the group's attention is on "
                f"cuda:{self._device}",
                "use one GPU a rank",
            )
        pool = self._pool_for(shape, config, softmax_scale, write_lse)
        kernel = kernel_for(self._device, shape, config, softmax_scale, write_lse)
        exchange, buffers = pool.ordered.exchange, pool.buffers
        receipt = Receipt(buffers.words, buffers.address, shape.buffer_bytes(shape.rank))

        def prepare(places: tuple[int, int, int]) -> PreparedLaunch:
            return kernel.prepare(
                *places, buffers.destinations, strides=strides, exchange=exchange, receipt=receipt
            )

        size = (shape.rows_of(shape.rank), shape.all_heads, shape.head_dim)
        lse = (shape.heads, shape.tokens) if write_lse else None
        return Call(self._device, config, prepare, pool.ordered, size, lse)

    def check(self) -> None:
        """Wait for the GPU.

        Raises:
            DeviceError: a call had a fault.
        """
        import_torch().cuda.synchronize(self._device)
        for pool in self._pools():
            if (fault := pool.ordered.exchange.fault()) is not None:
                raise fault

    def close(self) -> None:
        """Wait for the GPU and free all pools."""
        torch = import_torch()
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            for pool in self._pools():
                pool.close()
        self._pool, self._held = None, []

    def _pools(self) -> list[_Pool]:
        return [*self._held, *([] if self._pool is None else [self._pool])]

    def _pool_for(
        self,
        shape: AttentionShape,
        config: AttentionConfig | None,
        softmax_scale: float | None,
        write_lse: bool,
    ) -> _Pool:
        """The pool, agreed on and large enough. All ranks come here with equal arguments, but their rank."""
        key = (shape, config, softmax_scale, write_lse)
        needed = -(-shape.buffer_bytes(0) // _GRANULE_BYTES) * _GRANULE_BYTES
        pool = self._pool
        if key in self._agreed and pool is not None and pool.buffers.buffer_bytes >= needed:
            return pool
        if import_torch().cuda.is_current_stream_capturing():
            raise UsageError(
                "the ranks have not met for this shape and config yet, and a graph is being captured",
                "call attention_a2a once on every rank before the capture",
            )
        # A rank without a kernel keeps all from allocating, and so does one with another shape.
        offers = collectively(self._group, lambda: self._take_part(*key))
        check_offers(offers, shape.rank, _DISAGREE)
        if pool is None or pool.buffers.buffer_bytes < needed:
            self._pool = pool = self._grown(pool, needed)
        self._agreed.add(key)
        return pool

    def _grown(self, pool: _Pool | None, needed: int) -> _Pool:
        if pool is None:
            return _Pool(self._group, needed)
        collectively(self._group, self._put_away_pool)
        return _Pool(self._group, max(needed, _GROWTH * pool.buffers.buffer_bytes))

    def _put_away_pool(self) -> None:
        """Free the pool, but where graphs may hold it; after a fault it stays."""
        self.check()
        CALLS.forget(self._group)
        pool, self._pool = self._pool, None
        if pool is not None and pool.ordered.captured:
            self._held.append(pool)
        elif pool is not None:
            pool.close()

    def _take_part(
        self,
        shape: AttentionShape,
        config: AttentionConfig | None,
        softmax_scale: float | None,
        write_lse: bool,
    ) -> Offer:
        """Build this rank's kernel; what the others are told of it."""
        kernel_for(self._device, shape, config, softmax_scale, write_lse)
        agreed = {
            "tokens": shape.tokens,
            "KV tokens": shape.keys,
            "heads": shape.all_heads,
            "head_dim": shape.head_dim,
            "config": "the default" if config is None else config.label,
            "softmax scale": softmax_scale,
            "lse": "written" if write_lse else "none",
            "buffer bytes": 0 if self._pool is None else self._pool.buffers.buffer_bytes,
        }
        return Offer(agreed, gpu_identity(self._device))


#: Of every group, made by the first call and kept until it is closed.
_GROUPS: dict[ProcessGroup, GroupAttention] = {}
#: Buffers whose late senders may still store to them: never to be used for anything else.
_STORED_TO_LATE: list[SymmetricBuffers] = []
