"""Several ranks on one GPU, each with some of its SMs: the whole protocol, with memory of one owner.

What this proves: tables, dispatch, order of launches, signals and the reduction, late ranks and missing ones.
What it does not: that stores and signals between GPUs are ordered, since all pass through one memory system.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.core import Stream

from tests.attention_a2a.gpu import gpu, synchronize
from tests.megamoe_kernel.gpu import POISON
from tests.megamoe_kernel.quantised import quantise_blocks, quantise_rows, spread_blocks, spread_rows
from xstage_tune.cuda.moe_arguments import PULL, Dispatch, MoeScales, MoeTensors
from xstage_tune.cuda.moe_kernel import MegaMoe
from xstage_tune.cuda.moe_reduce import ReduceCombine
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.dispatch import RankTables, rank_tables
from xstage_tune.families.megamoe.workload import Precision

#: Left for the reductions, which wait beside kernels that have an SM each.
_FREE_SMS = 4
_REDUCING_CTAS = 4


def on_gpu(values: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to("cuda")


class VirtualRanks:
    """A layer over ``ranks`` ranks, whose words to wait for are in pinned memory.

    Args:
        tokens: of each rank.
    """

    def __init__(
        self,
        config: MegaMoeConfig,
        tokens: tuple[int, ...],
        *,
        experts: int,
        top_k: int,
        hidden: int,
        intermediate: int,
        precision: Precision = "bf16",
        skew: float = 0.0,
        seed: int = 0,
        timeout_s: float = 5.0,
        **build: Any,
    ) -> None:
        import torch

        self.device, self.ranks, self.top_k, self.hidden = gpu(), len(tokens), top_k, hidden
        self.precision = precision
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def normal(*size: int, scale: float = 1.0) -> Any:
            return (torch.randn(size, device="cuda", generator=generator) * scale).bfloat16()

        popularity = torch.arange(1, experts + 1, device="cuda") ** -skew
        self.choices = [
            torch.multinomial(popularity.expand(max(1, size), -1), top_k, generator=generator)[:size]
            for size in tokens
        ]
        self.tokens = [normal(size, hidden) for size in tokens]
        self.weights = [torch.rand(size, top_k, device="cuda", generator=generator) for size in tokens]
        self.weights1 = normal(experts, 2, intermediate, hidden, scale=hidden**-0.5)
        self.weights2 = normal(experts, hidden, intermediate, scale=intermediate**-0.5)
        #: What the operands are in fp32: tokens of each rank, and weights.
        self.exact_tokens = [one.float() for one in self.tokens]
        self.exact_weights = [self.weights1.float(), self.weights2.float()]
        self.token_scales: list[Any] = []
        self.weight_scales: list[Any] = []
        if precision == "w8a8":
            self._quantise()
        self.combined = [self._poisoned(size * top_k) for size in tokens]
        self.outputs = [self._poisoned(size) for size in tokens]
        #: Launches for which a rank's tokens are there, and of each rank those that each sender has ended.
        self.ready = torch.zeros(self.ranks, dtype=torch.int32, pin_memory=True)
        self.words = torch.zeros(self.ranks, self.ranks, dtype=torch.int32, pin_memory=True)
        self.streams = [torch.cuda.Stream() for _ in tokens]
        self.kernels: list[MegaMoe] = []
        self.reductions = []
        self._kept: list[Any] = []
        self._prepared = []
        tables = rank_tables([one.cpu().numpy() for one in self.choices], experts)
        local = experts // self.ranks
        sms = int(self.device.properties.multiprocessor_count) - _FREE_SMS
        for rank, mine in enumerate(tables):
            shape = MoeShape(
                hidden,
                intermediate,
                mine.tokens_per_expert,
                ranks=self.ranks,
                rank=rank,
                precision=precision,
            )
            kernel = MegaMoe(
                self.device,
                shape,
                config,
                dispatch=True,
                most_ctas=sms // self.ranks,
                timeout_s=timeout_s,
                **build,
            )
            self.kernels.append(kernel)
            own = slice(rank * local, (rank + 1) * local)
            tensors = self._tensors(mine, shape, config.block_m, own)
            self._prepared.append(kernel.prepare(tensors))
            reduction = ReduceCombine(self.device, kernel, timeout_s=timeout_s)
            self.reductions.append(
                (
                    reduction,
                    reduction.prepare(
                        self._address(self.combined[rank]),
                        self._address(self.weights[rank]),
                        self._address(self.outputs[rank]),
                        tokens[rank],
                        top_k,
                        self.words[rank].data_ptr(),
                    ),
                )
            )

    def announce(self, launches: int, late: tuple[int, ...] = ()) -> None:
        """Say that the tokens of all ranks but the late ones are there for so many launches."""
        for rank in range(self.ranks):
            if rank not in late:
                self.ready[rank] = launches

    def launch(self) -> None:
        """Queue all ranks' layers, then all their reductions."""
        synchronize()
        streams = [Stream.from_handle(stream.cuda_stream) for stream in self.streams]
        for kernel, prepared, stream in zip(self.kernels, self._prepared, streams, strict=True):
            kernel.launch(prepared, stream)
        for (reduction, arguments), stream in zip(self.reductions, streams, strict=True):
            reduction.launch(arguments, stream, ctas=_REDUCING_CTAS)

    def finish(self) -> list[Any]:
        """Wait, and return every rank's output."""
        synchronize()
        for kernel, stream in zip(self.kernels, self.streams, strict=True):
            kernel.require_finished(Stream.from_handle(stream.cuda_stream))
        return self.outputs

    def poison(self) -> None:
        for buffer in (*self.combined, *self.outputs):
            buffer.fill_(POISON)
        synchronize()

    def reference(self) -> list[Any]:
        """Every rank's output in fp32."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        outputs = []
        weights1, weights2 = self.exact_weights
        for tokens, choices, weights in zip(self.exact_tokens, self.choices, self.weights, strict=True):
            output = torch.zeros(len(tokens), self.hidden, device="cuda")
            for expert in choices.unique().tolist():
                token, choice = (choices == expert).nonzero(as_tuple=True)
                gate, up = (tokens[token] @ one.T for one in weights1[expert])
                made = torch.nn.functional.silu(gate) * up @ weights2[expert].T
                output.index_add_(0, token, made * weights[token, choice][:, None])
            outputs.append(output)
        return outputs

    def close(self) -> None:
        for kernel in self.kernels:
            kernel.close()

    def _quantise(self) -> None:
        """Put e4m3 and scales in place of the operands; those of a token's row in whole units of 16 bytes."""
        import torch

        for rank, exact in enumerate(self.exact_tokens):
            self.tokens[rank], scales = quantise_rows(exact)
            self.exact_tokens[rank] = self.tokens[rank].float() * spread_rows(scales, self.hidden)
            missing = -scales.shape[1] % 4
            self.token_scales.append(torch.nn.functional.pad(scales, (0, missing)).contiguous())
        quantised = [quantise_blocks(exact) for exact in self.exact_weights]
        (self.weights1, _), (self.weights2, _) = quantised
        self.weight_scales = [scales for _, scales in quantised]
        self.exact_weights = [
            numbers.float() * spread_blocks(scales, *numbers.shape[-2:]) for numbers, scales in quantised
        ]

    def _tensors(self, tables: RankTables, shape: MoeShape, block_m: int, own: slice) -> MoeTensors:
        import torch

        weights1, weights2 = self.weights1[own], self.weights2[own]

        places = np.concatenate(
            [np.empty(0, np.int64)]
            + [
                np.arange(place, place + tokens)
                for place, tokens in zip(shape.pool_places(block_m), shape.tokens_per_expert, strict=True)
            ]
        )
        sources = np.zeros((shape.pool_rows(block_m), 2), np.int32)
        sources[places, 0], sources[places, 1] = tables.rank, tables.slot
        pulls = np.zeros(max(1, len(tables.pulls)), PULL)
        pulls["rank"][: len(tables.pulls)] = tables.pulls[:, 0]
        pulls["token"][: len(tables.pulls)] = tables.pulls[:, 1]
        pulls["first_row"][: len(tables.pulls)] = tables.pull_first[:-1]
        pulls["rows"][: len(tables.pulls)] = np.diff(tables.pull_first)
        pool = torch.full((shape.pool_rows(block_m), self.hidden), float("nan"), device="cuda")
        pool = pool.to(self.weights1.dtype)
        scales = None
        if self.precision == "w8a8":
            of_pool = torch.full((shape.hidden_blocks, len(pool)), float("nan"), device="cuda")
            scales = MoeScales(of_pool.data_ptr(), *(one[own].data_ptr() for one in self.weight_scales))
            self._kept.append(of_pool)
        rows = places[tables.pull_rows] if len(places) else np.zeros(1, np.int64)
        held = [on_gpu(sources), on_gpu(pulls.view(np.int32)), on_gpu(rows.astype(np.int32)), pool]
        self._kept += [*held, weights1, weights2]
        return MoeTensors(
            pool.data_ptr(),
            weights1.data_ptr(),
            weights2.data_ptr(),
            held[0].data_ptr(),
            tuple(self._address(one) for one in self.combined),
            signals=tuple(self.words[rank].data_ptr() + 4 * shape.rank for rank in range(self.ranks)),
            dispatch=Dispatch(
                tuple(self._address(one) for one in self.tokens),
                tuple(self.ready.data_ptr() + 4 * rank for rank in range(self.ranks)),
                held[1].data_ptr(),
                held[2].data_ptr(),
                len(tables.pulls),
                scales=tuple(self._address(one) for one in self.token_scales),
            ),
            scales=scales,
        )

    def _address(self, tensor: Any) -> int:
        """Of a tensor; of any memory where it is empty, which has no address of its own."""
        address: int = tensor.data_ptr() or self.weights1.data_ptr()
        return address

    def _poisoned(self, rows: int) -> Any:
        import torch

        return torch.full((rows, self.hidden), POISON, device="cuda", dtype=torch.bfloat16)
