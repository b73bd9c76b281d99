"""What one rank of a Ulysses attention computes, and where its output goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.ownership import first_token, rows_per_rank

#: Destinations that a launch can name: the GPUs of one NVLink domain (``kMaxRanks`` of ``arguments.cuh``).
MAX_RANKS = 8
_BF16_BYTES = 2
_MOST_ELEMENTS = 2**31
#: The copy engine's coordinates and strides.
_ADDRESS_ALIGNMENT = 16
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Full attention of ``heads`` local heads over all tokens, on one of ``ranks`` ranks.

    Rank ``r`` computes the global heads ``[first_head, first_head + heads)``. After the All-to-All rank ``t``
    holds ``[rows_of(t), all_heads, head_dim]``: all heads of its own ``ceil(tokens / ranks)`` consecutive
    tokens, the last ranks fewer or none.

    Args:
        tokens: M, of the whole sequence.
        heads: local heads.
        head_dim: d.
        ranks: Ulysses degree P.
        rank: this rank.
        kv_tokens: of K and V, M by default.
        total_heads: of all ranks, ``ranks * heads`` by default. Where ``ranks`` does not divide them, the
            first ranks have one more than the others (:func:`local_heads`).

    Raises:
        UsageError: a size is out of range.
    """

    tokens: int
    heads: int
    head_dim: int
    ranks: int = 1
    rank: int = 0
    kv_tokens: int | None = None
    total_heads: int | None = None

    def __post_init__(self) -> None:
        for tokens in (self.tokens, self.keys):
            if tokens < 1:
                raise UsageError(f"attention over {tokens} tokens", "give at least one token")
        if self.heads < 1 or self.head_dim < 1:
            raise UsageError(
                f"attention of {self.heads} heads of {self.head_dim} elements", "give at least one"
            )
        if not 1 <= self.ranks <= MAX_RANKS:
            raise UsageError(
                f"{self.ranks} ranks: the kernel's table holds 1 to {MAX_RANKS}", "lower the degree"
            )
        if not 0 <= self.rank < self.ranks:
            raise UsageError(f"rank {self.rank} is not one of {self.ranks}", f"use 0 to {self.ranks - 1}")
        if self.total_heads is not None and self.heads != (
            share := local_heads(self.total_heads, self.ranks, self.rank)
        ):
            raise UsageError(
                f"{self.heads} local heads on rank {self.rank}, whose share of {self.total_heads} is {share}",
                "give the first ranks one head more where the ranks do not divide them",
            )
        longest = max(self.tokens, self.keys)
        if longest * self.heads * self.head_dim >= _MOST_ELEMENTS:
            raise UsageError(
                f"tensors of {longest} x {self.heads} x {self.head_dim} elements are too large",
                f"keep tokens x heads x head_dim below {_MOST_ELEMENTS}",
            )

    @classmethod
    def of_group(cls, tokens: int, heads: int, head_dim: int, ranks: int, rank: int) -> Self:
        """The share of ``rank`` in an attention of ``heads`` heads over all ranks.

        Raises:
            UsageError: ``heads`` is not divisible by ``ranks``, or a size is out of range.
        """
        if ranks < 1 or heads % ranks:
            raise UsageError(
                f"{heads} heads are not divisible by {ranks} ranks", "choose a degree that divides the heads"
            )
        return cls(tokens, heads // ranks, head_dim, ranks, rank)

    @property
    def keys(self) -> int:
        """Tokens of K and V."""
        return self.tokens if self.kv_tokens is None else self.kv_tokens

    @property
    def all_heads(self) -> int:
        """Heads of all ranks."""
        return self.ranks * self.heads if self.total_heads is None else self.total_heads

    @property
    def first_head(self) -> int:
        """This rank's first one of them."""
        if self.total_heads is None:
            return self.rank * self.heads
        return sum(local_heads(self.total_heads, self.ranks, before) for before in range(self.rank))

    @property
    def rows_per_rank(self) -> int:
        """Tokens that a rank owns; the last ranks may own fewer."""
        return rows_per_rank(self.tokens, self.ranks)

    def rows_of(self, rank: int) -> int:
        """Tokens that ``rank`` owns."""
        begin, end = (first_token(self.tokens, self.ranks, of) for of in (rank, rank + 1))
        return end - begin

    @property
    def row_bytes(self) -> int:
        """Of one token's row of one head."""
        return self.head_dim * _BF16_BYTES

    @property
    def token_bytes(self) -> int:
        """Of one token in a rank's buffer: its rows of all heads."""
        return self.all_heads * self.row_bytes

    def buffer_bytes(self, rank: int) -> int:
        """Of one of ``rank``'s two buffers."""
        return self.rows_of(rank) * self.token_bytes

    @property
    def flops(self) -> int:
        """Floating-point operations of both matrix products on this rank."""
        return 4 * self.tokens * self.keys * self.head_dim * self.heads


def local_heads(heads: int, ranks: int, rank: int) -> int:
    """Of all ``heads`` those of ``rank``: the first ranks have one more where P does not divide them."""
    return heads // ranks + (rank < heads % ranks)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Destinations:
    """The ranks' output buffers, as this GPU addresses them.

    With signals every object is an exchange of its own, which begins at epoch 1: use the same one for all
    calls that take turns at its buffers.

    Args:
        buffers: ``[ranks]`` base addresses of ``[rows_of(t), all_heads, head_dim]`` bf16, 16-byte
            aligned; in any memory that the GPU can store to: its own, pinned host memory, a peer's. 0 for a
            rank without tokens.
        epoch_bytes: from a rank's buffer of the even epochs to that of the odd ones; 0 where there is one
            buffer.
        signals: ``[ranks]`` addresses of a zeroed ``uint32`` of this sender at every rank, to which a
            launch writes the number of epochs that have arrived; empty for launches that signal nothing and
            always store to the first buffer.
    """

    buffers: tuple[int, ...]
    epoch_bytes: int = 0
    signals: tuple[int, ...] = ()

    def check(self, shape: AttentionShape) -> None:
        """Refuse a table that does not fit ``shape``.

        Raises:
            UsageError: too few or too many entries, a missing or misaligned address, or overlapping epochs.
        """
        if len(self.buffers) != shape.ranks:
            raise UsageError(
                f"{len(self.buffers)} destination buffers for {shape.ranks} ranks", "give one buffer a rank"
            )
        if self.signals and len(self.signals) != shape.ranks:
            raise UsageError(f"{len(self.signals)} signals for {shape.ranks} ranks", "give one signal a rank")
        for rank, address in enumerate(self.buffers):
            _check_address(f"buffer of rank {rank}", address, _ADDRESS_ALIGNMENT, shape.rows_of(rank) == 0)
        for rank, address in enumerate(self.signals):
            _check_address(f"signal of rank {rank}", address, _WORD_BYTES, False)
        if self.epoch_bytes % _ADDRESS_ALIGNMENT or 0 < self.epoch_bytes < shape.buffer_bytes(0):
            raise UsageError(
                f"epoch_bytes = {self.epoch_bytes} for buffers of {shape.buffer_bytes(0)} bytes",
                f"leave a whole buffer between epochs, in multiples of {_ADDRESS_ALIGNMENT}",
            )


def _check_address(name: str, address: int, alignment: int, may_be_none: bool) -> None:
    hint = f"give a device address, aligned to {alignment} bytes"
    if not isinstance(address, int):
        raise UsageError(f"the {name} is a {type(address).__name__}, not an address", hint)
    if address % alignment or address < 0 or (address == 0 and not may_be_none):
        raise UsageError(f"the {name} is at {address:#x}", hint)
