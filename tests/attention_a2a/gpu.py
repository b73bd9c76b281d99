"""What the GPU tests share: inputs, a reference in fp32, and poisoned buffers of every rank."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.core import Device, Stream

from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.attention_epochs import Exchange
from xstage_tune.cuda.attention_kernel import AttentionA2A, PreparedLaunch
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.memory import enable_peer_access
from xstage_tune.families.attention_a2a.config import AttentionConfig

#: A bf16 number that no attention over unit normal values comes near.
POISON = -1.0e30
_REFERENCE_ELEMENTS = 1 << 28
_OWN: dict[str, Any] = {"device": "cuda:0"}
_OWNER: dict[StorePath, dict[str, Any]] = {
    "local": _OWN,
    "host": {"pin_memory": True},
    "peer": {"device": "cuda:1"},
}


def gpu() -> Device:
    """torch's first GPU, its context current."""
    import torch

    torch.zeros(1, device="cuda")
    device = Device(0)
    device.set_current()
    return device


def current_stream() -> Stream:
    import torch

    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def require_path(path: StorePath) -> None:
    """Skip the test where this machine has no such path."""
    import torch

    if path == "peer" and torch.cuda.device_count() < 2:
        pytest.skip("path 'peer' needs a second GPU")


def synchronize() -> None:
    """Wait for all GPUs."""
    import torch

    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def random_inputs(shape: AttentionShape, seed: int) -> tuple[Any, Any, Any]:
    """q, k, v: ``[tokens, heads, head_dim]`` of unit normal bf16."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    size = (shape.tokens, shape.heads, shape.head_dim)
    q, k, v = (torch.randn(size, device="cuda", generator=generator).bfloat16() for _ in range(3))
    return q, k, v


def reference(q: Any, k: Any, v: Any, rows: Any = None) -> Any:
    """Attention in fp32, ``[rows, heads, head_dim]``: of the query rows ``rows``, all by default."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    queries = q if rows is None else q[rows]
    out = torch.empty(queries.shape, device="cuda")
    step = max(1, _REFERENCE_ELEMENTS // len(k))
    for head in range(q.shape[1]):
        keys, values = k[:, head].float().T.contiguous(), v[:, head].float()
        for first in range(0, len(queries), step):
            scores = queries[first : first + step, head].float() @ keys * q.shape[2] ** -0.5
            out[first : first + step, head] = torch.softmax(scores, -1) @ values
    return out


def relative_error(out: Any, expected: Any) -> float:
    """Of the norms; NaN if ``out`` has any."""
    return float((out.float() - expected).norm() / expected.norm())


class RankBuffers:
    """Poisoned output buffers of all ranks: this rank's in its GPU, the others' on ``path``.

    The words to signal are with the others' buffers, on path ``local`` in pinned memory.
    Every buffer has as many rows as rank 0's, so that the last ranks' have rows that nobody may write.
    """

    def __init__(
        self, shape: AttentionShape, path: StorePath, epochs: int = 1, signals: bool = False
    ) -> None:
        import torch

        self.shape = shape
        size = (epochs, shape.rows_per_rank, shape.ranks * shape.heads, shape.head_dim)
        if path == "peer":
            enable_peer_access(gpu(), Device(1))
        self.buffers = [
            torch.full(size, POISON, dtype=torch.bfloat16, **(_OWNER[path] if rank != shape.rank else _OWN))
            for rank in range(shape.ranks)
        ]
        words_owner = _OWNER["host" if path == "local" else path]
        self.words = torch.zeros(shape.ranks, dtype=torch.int32, **words_owner)
        self.destinations = Destinations(
            buffers=tuple(buffer.data_ptr() for buffer in self.buffers),
            epoch_bytes=shape.buffer_bytes(0) if epochs == 2 else 0,
            signals=tuple(self.words.data_ptr() + 4 * rank for rank in range(shape.ranks)) if signals else (),
        )

    def poison(self) -> None:
        for buffer in self.buffers:
            buffer.fill_(POISON)
        synchronize()  # streams of one GPU do not wait for fills on another

    def gathered(self, slot: int = 0) -> Any:
        """This rank's heads of all tokens, ``[tokens, heads, head_dim]``, as the ranks hold them."""
        import torch

        own = slice(self.shape.rank * self.shape.heads, (self.shape.rank + 1) * self.shape.heads)
        return torch.cat(
            [
                buffer[slot, : self.shape.rows_of(rank), own].to("cuda:0")
                for rank, buffer in enumerate(self.buffers)
            ]
        )

    def untouched(self, slot: int = 0) -> bool:
        """Whether nothing was written but this rank's heads of the tokens that there are."""
        mine = self.shape.rank * self.shape.heads
        return all(
            bool((part == POISON).all())
            for rank, buffer in enumerate(self.buffers)
            for part in (
                buffer[slot, :, :mine],
                buffer[slot, :, mine + self.shape.heads :],
                buffer[slot, self.shape.rows_of(rank) :],
            )
        )


class Case:
    """A kernel, its inputs and its buffers."""

    def __init__(
        self,
        shape: AttentionShape,
        config: AttentionConfig,
        path: StorePath = "local",
        *,
        seed: int = 0,
        epochs: int = 1,
        signals: bool = False,
        complete: bool = True,
        **build: Any,
    ) -> None:
        self.kernel = AttentionA2A(gpu(), shape, config, **build)
        self.inputs = random_inputs(shape, seed)
        self.ranks = RankBuffers(shape, path, epochs, signals)
        self.exchange = Exchange(gpu())
        q, k, v = (tensor.data_ptr() for tensor in self.inputs)
        self.prepared: PreparedLaunch = self.kernel.prepare(
            q, k, v, self.ranks.destinations, exchange=self.exchange, complete=complete
        )

    def launch(self) -> None:
        self.kernel.launch(self.prepared, current_stream())

    def run(self) -> Any:
        """Launch on poisoned buffers, wait, and gather."""
        import torch

        self.ranks.poison()
        self.launch()
        torch.cuda.synchronize()
        return self.ranks.gathered()
