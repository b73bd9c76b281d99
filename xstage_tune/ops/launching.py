"""Attention calls of one kind, ready to be queued at little cost: what does not change is made once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.ops.runtime import import_torch, tensors_like, torch_calls
from xstage_tune.ops.tensors import Tensor

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_kernel import PreparedLaunch
    from xstage_tune.cuda.stream_order import StreamOrder

#: Places of q, k and v whose launches are kept, of each kind of call: an allocator gives few in turn.
_MOST_PLACES = 64
_MOST_KINDS = 1024
#: Addresses for which calls are found at once, and layouts of tensors at each of them.
_MOST_READY = 4096
_MOST_LAYOUTS = 4
_OUT_ALIGNMENT, _LSE_ALIGNMENT = 16, 4
_LONGEST_TIMEOUT_S = 86_400.0

Places = tuple[int, int, int]
Key = tuple[object, ...]


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
        config: kept as long as this is.
        prepare: a launch on tensors at three addresses.
        ordered: the exchange of its destinations; None without one.
        size: of this rank's tokens, which calls receive: ``[rows, heads, head_dim]``; None to receive none.
        lse: size of the log-sum-exps that calls write, ``[local heads, tokens]``; None to write none.
    """

    def __init__(
        self,
        device: int,
        config: object,
        prepare: Callable[[Places], PreparedLaunch],
        ordered: Ordered[Any] | None = None,
        size: tuple[int, int, int] | None = None,
        lse: tuple[int, int] | None = None,
    ) -> None:
        self.device = device
        self.ordered = ordered
        self.size, self.lse = size, lse
        self._config = config
        self._prepare = prepare
        self._launches: dict[Places, PreparedLaunch] = {}

    def on(self, q: Tensor, k: Tensor, v: Tensor) -> CallOnTensors:
        """Calls on tensors where these are.

        Raises:
            UsageError: an address is misaligned.
        """
        places = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if (launch := self._launches.get(places)) is None:
            launch = self._prepare(places)
            if len(self._launches) >= _MOST_PLACES:
                self._launches.clear()
            self._launches[places] = launch
        return CallOnTensors(self, launch, tensors_like(q, k, v))


class CallOnTensors:
    """Calls on tensors that are where others were; a call costs what is done here.

    Args:
        kind: of which they are.
        launch: on tensors at these addresses.
        fits: whether three tensors, which are there, have all else that the call depends on.
    """

    __slots__ = (
        "_bf16", "_capturing", "_current_device", "_current_stream", "_device", "_empty", "_fits_out",
        "_fp32", "_kind", "_launch", "_on_gpu", "_ordered", "_size", "_strides", "_timeout_ns", "_timeout_s",
        "fits",
    )  # fmt: skip

    def __init__(self, kind: Call, launch: PreparedLaunch, fits: Callable[..., bool]) -> None:
        torch = import_torch()
        self.fits = fits
        self._kind = kind  # keeps the config
        self._launch = launch
        self._device, self._ordered, self._size = kind.device, kind.ordered, kind.size
        self._strides = (0, 0, 1) if kind.size is None else (kind.size[1] * kind.size[2], kind.size[2], 1)
        # Whether a tensor is as the last one that was found to fit as output.
        self._fits_out: Callable[..., bool] = lambda _: False
        self._timeout_s, self._timeout_ns = 0.0, 0
        self._bf16, self._fp32 = torch.bfloat16, torch.float32
        self._on_gpu = torch.cuda.device
        self._empty, self._current_device, self._current_stream, self._capturing = torch_calls()

    def queue(self, timeout_s: float, out: Any, lse: Any) -> Any:
        """Queue a call on torch's current stream; what it returns is complete behind it there.

        Raises:
            UsageError: ``out`` or ``lse`` does not fit, or the timeout is no time.
            DeviceError: an earlier call had a fault.
        """
        if self._current_device() != self._device:
            with self._on_gpu(self._device):
                return self.queue(timeout_s, out, lse)
        launch, ordered = self._launch, self._ordered
        if lse is not None:
            self._require("lse", lse, self._kind.lse, self._fp32, _LSE_ALIGNMENT)
        stream = self._current_stream(self._device)
        if ordered is None:
            if lse is not None:
                launch.lse.value = lse.data_ptr()
            launch.queue(stream)
            return None
        if timeout_s != self._timeout_s:
            self._timeout_s = checked_timeout(timeout_s)
            self._timeout_ns = round(timeout_s * NS_PER_S)
        if self._size is not None:
            if out is None:
                out = self._empty(self._size, self._strides, self._bf16)
            elif not self._fits_out(out) or out.data_ptr() % _OUT_ALIGNMENT:
                self._require("out", out, self._size, self._bf16, _OUT_ALIGNMENT)
                self._fits_out = tensors_like(out)
        capturing = self._capturing()
        with ordered.lock:
            if capturing or stream != ordered.stream or ordered.exchange.raised.value:
                ordered.enter(stream, capturing=capturing)
            if self._size is not None:
                launch.output.value = out.data_ptr()
                launch.timeout_ns.value = self._timeout_ns
            if lse is not None:
                launch.lse.value = lse.data_ptr()
            launch.queue(stream)
        return out

    def _require(
        self, name: str, given: Any, size: tuple[int, ...] | None, dtype: Any, alignment: int
    ) -> None:
        """Refuse a tensor that cannot be written as what it is given for."""
        fits = given.shape == size and given.dtype == dtype and given.is_contiguous() and given.is_cuda
        if not fits or given.device.index != self._device or given.data_ptr() % alignment:
            raise UsageError(
                f"{name} is {given.dtype} {list(given.shape)} on {given.device}",
                f"give contiguous {str(dtype).removeprefix('torch.')} {list(size or ())} on "
                f"cuda:{self._device}, aligned to {alignment} bytes",
            )


class CallsByKey:
    """Calls that were made before, by what they depend on.

    A key begins with the destination. Of a config it has the ``id``, since hashing its fields takes longer
    than a launch; the config is kept by the call, so that nothing else gets that ``id``.
    """

    def __init__(self) -> None:
        #: By all but the addresses of tensors.
        self.kinds: dict[Key, Call] = {}
        #: By all but the layouts of tensors, the latest first.
        self.ready: dict[Key, tuple[CallOnTensors, ...]] = {}

    def keep_kind(self, key: Key, call: Call) -> None:
        """Keep a kind of calls."""
        if len(self.kinds) >= _MOST_KINDS:
            self.kinds.clear()
        self.kinds[key] = call

    def keep_ready(self, key: Key, call: CallOnTensors) -> None:
        """Keep a call on tensors."""
        if len(self.ready) >= _MOST_READY:
            self.ready.clear()
        self.ready[key] = (call, *self.ready.get(key, ()))[:_MOST_LAYOUTS]

    def forget(self, destination: object) -> None:
        """Drop all calls to this destination."""
        for kept in (self.kinds, self.ready):
            for key in [key for key in list(kept) if key[0] is destination]:
                kept.pop(key, None)

    def clear(self) -> None:
        """Drop all calls."""
        self.kinds.clear()
        self.ready.clear()


#: Of this process.
CALLS = CallsByKey()


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
