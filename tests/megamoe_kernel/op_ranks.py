"""A layer's inputs for the op on several ranks of one GPU, and what it has to return, in plain torch."""

from __future__ import annotations

from typing import Any

import torch

from tests.megamoe_kernel.quantised import (
    quantise_blocks,
    quantise_rows,
    requantised,
    spread_blocks,
    spread_rows,
)


class Layer:
    """Weights of all ranks, sharded by their experts, and tokens and choices of each rank."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        *,
        experts: int,
        top_k: int,
        hidden: int,
        intermediate: int,
        scaled: bool,
    ) -> None:
        generator = torch.Generator(device="cuda").manual_seed(sum(sizes))

        def normal(*size: int, scale: float = 1.0) -> Any:
            return (torch.randn(size, device="cuda", generator=generator) * scale).bfloat16()

        self.ranks, self.local, self.hidden, self.top_k = len(sizes), experts // len(sizes), hidden, top_k
        self.experts, self.scaled, self.generator = experts, scaled, generator
        first = normal(experts, 2 * intermediate, hidden, scale=hidden**-0.5)
        second = normal(experts, hidden, intermediate, scale=intermediate**-0.5)
        self.scales: tuple[Any, Any] | None = None
        self.exact = first.float(), second.float()
        self.weights = first, second
        if scaled:
            (first, of_first), (second, of_second) = (quantise_blocks(one) for one in self.exact)
            self.weights, self.scales = (first, second), (of_first, of_second)
            self.exact = (
                first.float() * spread_blocks(of_first, 2 * intermediate, hidden),
                second.float() * spread_blocks(of_second, hidden, intermediate),
            )
        self.sizes = sizes
        self.draw()

    def draw(self) -> None:
        """Other tokens and another routing, in which the first experts are chosen more often."""
        popularity = torch.arange(1, self.experts + 1, device="cuda") ** -0.7

        def choices(size: int) -> Any:
            drawn = torch.multinomial(
                popularity.expand(max(1, size), -1), self.top_k, generator=self.generator
            )
            return drawn[:size].contiguous()

        self.choices = [choices(size) for size in self.sizes]
        self.tokens = [
            torch.randn(size, self.hidden, device="cuda", generator=self.generator).bfloat16()
            for size in self.sizes
        ]
        self.router = [
            torch.rand(size, self.top_k, device="cuda", generator=self.generator) for size in self.sizes
        ]

    def of(self, rank: int) -> tuple[Any, ...]:
        """Positional arguments of a rank but for its group."""
        own = slice(rank * self.local, (rank + 1) * self.local)
        return (
            self.tokens[rank], self.choices[rank], self.router[rank],
            self.weights[0][own], self.weights[1][own],
        )  # fmt: skip

    def scales_of(self, rank: int) -> dict[str, Any]:
        """Keywords of a rank; none in bf16."""
        own = slice(rank * self.local, (rank + 1) * self.local)
        if self.scales is None:
            return {}
        return {"scales1": self.scales[0][own], "scales2": self.scales[1][own]}

    def reference(self, rank: int) -> Any:
        """fp32, on the quantised operands where there are some."""
        torch.backends.cuda.matmul.allow_tf32 = False
        tokens = self.tokens[rank].float()
        if self.scaled:
            numbers, scales = quantise_rows(tokens)
            tokens = numbers.float() * spread_rows(scales, self.hidden)
        output = torch.zeros_like(tokens)
        for expert in self.choices[rank].unique().tolist():
            token, choice = (self.choices[rank] == expert).nonzero(as_tuple=True)
            gate, up = (tokens[token] @ self.exact[0][expert].T).chunk(2, -1)
            made = torch.nn.functional.silu(gate) * up
            made = requantised(made) if self.scaled else made
            made = made @ self.exact[1][expert].T
            output.index_add_(0, token, made * self.router[rank][token, choice][:, None])
        return output
