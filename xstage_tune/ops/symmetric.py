"""Output buffers and signals in torch symmetric memory, which all ranks of a group address."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import DeviceError
from xstage_tune.ops.collective import ProcessGroup, collectively
from xstage_tune.ops.runtime import import_torch

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_shape import Destinations

_BUFFERS = 2
_WORD_BYTES = 4


class SymmetricMemory:
    """Zeroed memory of every rank that all ranks address, as large on each.

    All ranks of the group make it at once, on torch's current GPU.

    Raises:
        DeviceError: torch has no symmetric memory, a GPU lacks memory, or it cannot address another's.
    """

    def __init__(self, group: ProcessGroup, nbytes: int) -> None:
        self._rank = group.rank()
        collectively(group, lambda: self._allocate(nbytes))
        # torch may place a tensor anywhere in the memory that it maps, at another place on every rank.
        offsets = collectively(group, lambda: self._map(group))
        bases = zip(self._mapping.buffer_ptrs, offsets, strict=True)
        #: Where each rank's begins.
        self.starts: tuple[int, ...] = tuple(base + offset for base, offset in bases)

    def _allocate(self, nbytes: int) -> None:
        torch = import_torch()
        device = torch.device("cuda", torch.cuda.current_device())
        try:
            #: ``[nbytes]`` of uint8.
            self._memory = _symmetric_memory().empty(nbytes, dtype=torch.uint8, device=device)
        except RuntimeError as error:
            raise DeviceError(
                f"cannot allocate {nbytes >> 20} MiB of symmetric memory: {_first_line(error)}",
                "free memory, or use fewer tokens; close_group frees a group's buffers",
            ) from None
        self._memory.zero_()
        torch.cuda.current_stream().synchronize()

    def _map(self, group: ProcessGroup) -> int:
        """Bytes from the start of this rank's mapped memory to the buffers."""
        hint = "give every rank a GPU of its own, all of one host or NVLink domain with peer access"
        try:
            self._mapping = _symmetric_memory().rendezvous(self._memory, group)
        except RuntimeError as error:
            raise DeviceError(
                f"the group's GPUs cannot map each other's memory: {_first_line(error)}", hint
            ) from None
        bases = self._mapping.buffer_ptrs
        if 0 in bases:
            raise DeviceError(f"the memory of rank {bases.index(0)} cannot be addressed from here", hint)
        return int(self._memory.data_ptr() - bases[self._rank])

    @property
    def address(self) -> int:
        """Of this rank's own."""
        return int(self._memory.data_ptr())


class SymmetricBuffers(SymmetricMemory):
    """Of every rank two output buffers and a zeroed word for every sender, in memory that all ranks address.

    Laid out alike on all ranks, also on those that own fewer tokens: the buffers, then the words. Tensors of
    any shape take turns at them.

    Args:
        buffer_bytes: of one buffer, a multiple of 16.

    Raises:
        DeviceError: as :class:`SymmetricMemory`.
    """

    def __init__(self, group: ProcessGroup, buffer_bytes: int) -> None:
        from xstage_tune.cuda.attention_shape import Destinations

        self.buffer_bytes = buffer_bytes
        super().__init__(group, _BUFFERS * buffer_bytes + group.size() * _WORD_BYTES)
        my_word = _BUFFERS * buffer_bytes + group.rank() * _WORD_BYTES
        #: Both buffers of every rank, and this sender's word there.
        self.destinations: Destinations = Destinations(
            buffers=self.starts,
            epoch_bytes=buffer_bytes,
            signals=tuple(start + my_word for start in self.starts),
        )

    @property
    def words(self) -> int:
        """Address of this rank's ``uint32[ranks]``, one of every sender."""
        return self.address + _BUFFERS * self.buffer_bytes


def _symmetric_memory() -> Any:
    try:
        return import_module("torch.distributed._symmetric_memory")
    except ImportError as error:
        raise DeviceError(
            f"this torch has no symmetric memory: {error}", "install torch 2.9 or later, built for CUDA"
        ) from None


def _first_line(error: RuntimeError) -> str:
    return str(error).partition("\n")[0]
