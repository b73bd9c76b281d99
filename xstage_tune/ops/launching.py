"""Attention calls of one kind, ready to be queued at little cost: what does not change is made once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.ops.runtime import import_torch, torch_calls
from xstage_tune.ops.tensors import Tensor

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_kernel import PreparedLaunch
    from xstage_tune.cuda.stream_order import StreamOrder

#: Places of q, k and v whose launches are kept, of each kind of call: an allocator gives few in turn.
_MOST_PLACES = 64
_MOST_CALLS = 1024
_LONGEST_TIMEOUT_S = 86_400.0

Places = tuple[int, int, int]


class Faulting(Protocol):
    """What goes on from call to call on the GPU until something stops it."""

    @property
    def raised(self) -> ctypes.c_uint32:
        """0 until there is a fault; read without waiting."""
        ...

    def fault(self) -> DeviceError | None:
        """What stopped it."""
        ...

    def close(self) -> None:
        """Free its memory."""
        ...


ExchangeT = TypeVar("ExchangeT", bound=Faulting)


class Ordered(Generic[ExchangeT]):
    """An exchange, and the order in which its calls go on."""

    def __init__(self, exchange: ExchangeT) -> None:
        from xstage_tune.cuda.stream_order import StreamOrder

        self.exchange = exchange
        #: Whether a call was captured, so that graphs may hold what it used.
        self.captured = False
        #: The stream of the last call that was not captured.
        self.stream: int | None = None
        #: Of threads of this process: they share the arguments of launches.
        self.lock = Lock()
        self._order: StreamOrder = StreamOrder()

    def enter(self, stream: int, *, capturing: bool) -> None:
        """Put what is queued next on the stream of this handle behind the calls before.

        Raises:
            DeviceError: an earlier call had a fault.
        """
        if (fault := self.exchange.fault()) is not None:
            raise fault
        self._order.enter(stream, capturing=capturing)
        if capturing:
            self.captured = True
        else:
            self.stream = stream


class Call:
    """Calls with one layout of inputs, one config and one destination, on one GPU.

    Args:
        device: number of the GPU, which is current.
        prepare: a launch on tensors at three addresses.
        ordered: the exchange of its destinations; None without one.
        size: of this rank's tokens, which calls receive: ``[rows, heads, head_dim]``; None to receive none.
    """

    def __init__(
        self,
        device: int,
        prepare: Callable[[Places], PreparedLaunch],
        ordered: Ordered[Any] | None = None,
        size: tuple[int, int, int] | None = None,
    ) -> None:
        torch = import_torch()
        self._device = device
        self._prepare = prepare
        self._ordered = ordered
        self._size = size
        self._strides = (0, 0, 1) if size is None else (size[1] * size[2], size[2], 1)
        self._launches: dict[Places, PreparedLaunch] = {}
        self._timeout_s, self._timeout_ns = 0.0, 0
        self._bf16 = torch.bfloat16
        self._on_gpu = torch.cuda.device
        self._empty, self._current_device, self._current_stream, self._capturing = torch_calls()

    def queue(self, q: Tensor, k: Tensor, v: Tensor, timeout_s: float, out: Any) -> Any:
        """Queue a call on torch's current stream; what it returns is complete behind it there.

        Raises:
            UsageError: an address is misaligned, ``out`` does not fit, or the timeout is no time.
            DeviceError: an earlier call had a fault.
        """
        if self._current_device() != self._device:
            with self._on_gpu(self._device):
                return self.queue(q, k, v, timeout_s, out)
        places = q.data_ptr(), k.data_ptr(), v.data_ptr()
        launch = self._launches.get(places) or self._remember(places)
        stream = self._current_stream(self._device)
        ordered = self._ordered
        if ordered is None:
            launch.queue(stream)
            return None
        if timeout_s != self._timeout_s:
            self._timeout_s = checked_timeout(timeout_s)
            self._timeout_ns = round(timeout_s * NS_PER_S)
        if self._size is not None:
            out = self._empty(self._size, self._strides, self._bf16) if out is None else self._checked(out)
        capturing = self._capturing()
        with ordered.lock:
            if capturing or stream != ordered.stream or ordered.exchange.raised.value:
                ordered.enter(stream, capturing=capturing)
            if self._size is not None:
                launch.output.value = out.data_ptr()
                launch.timeout_ns.value = self._timeout_ns
            launch.queue(stream)
        return out

    def _remember(self, places: Places) -> PreparedLaunch:
        launch = self._prepare(places)
        if len(self._launches) >= _MOST_PLACES:
            self._launches.pop(next(iter(self._launches)))
        self._launches[places] = launch
        return launch

    def _checked(self, out: Any) -> Any:
        size = self._size
        fits = tuple(out.shape) == size and out.dtype == self._bf16 and out.is_contiguous()
        if not fits or not out.is_cuda or out.device.index != self._device or out.data_ptr() % 16:
            raise UsageError(
                f"out is {out.dtype} {list(out.shape)} on {out.device}",
                f"give contiguous bfloat16 {list(size or ())} on cuda:{self._device}, aligned to 16 bytes",
            )
        return out


class Calls(dict[tuple[object, ...], tuple[Any, Call]]):
    """Calls that were made ready, with their config, by all that they depend on; the oldest go first.

    A key begins with the destination. Of a config it has the ``id``, since hashing its fields takes longer
    than a launch; the config that is kept here makes sure that nothing else gets that ``id``.
    """

    def keep(self, key: tuple[object, ...], config: object, call: Call) -> None:
        """Keep a call, unless its destination cannot be a part of a key."""
        if len(self) >= _MOST_CALLS:
            self.pop(next(iter(self)))
        with suppress(TypeError):
            self[key] = config, call

    def forget(self, destination: object) -> None:
        """Drop all calls to this destination."""
        for key in [key for key in self if key[0] is destination]:
            del self[key]


#: Of this process.
CALLS = Calls()


def checked_timeout(timeout_s: float) -> float:
    """The timeout.

    Raises:
        UsageError: it is no time.
    """
    if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
        raise UsageError(
            f"a timeout of {timeout_s} s", f"give more than 0 and at most {_LONGEST_TIMEOUT_S:.0f}"
        )
    return timeout_s
