"""What the GPU tests of the MoE kernel share: inputs, a plain torch reference, poisoned destinations."""

from __future__ import annotations

from typing import Any

from tests.attention_a2a.gpu import current_stream, gpu, synchronize
from tests.megamoe_kernel.quantised import (
    quantise_blocks,
    quantise_rows,
    requantised,
    spread_blocks,
    spread_rows,
)
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.memory import enable_peer_access
from xstage_tune.cuda.moe_arguments import MoeScales, MoeTensors
from xstage_tune.cuda.moe_kernel import MegaMoe
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.families.megamoe.config import MegaMoeConfig

#: A bf16 number that no output comes near.
POISON = -1.0e30
#: Slots of a rank that belong to no row, so that nobody may write them.
_SPARE_SLOTS = 3
_OWN: dict[str, Any] = {"device": "cuda"}
_OWNER: dict[StorePath, dict[str, Any]] = {
    "local": _OWN,
    "host": {"pin_memory": True},
    "peer": {"device": "cuda:1"},
}


class Layer:
    """Weights, routed tokens in their pool, and whose they are; fresh for every seed.

    What the pool has between the experts is NaN: nothing of it may reach an output.
    """

    def __init__(self, shape: MoeShape, block_m: int, seed: int = 0) -> None:
        import torch

        self.shape, self.block_m = shape, block_m
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def normal(*size: int, scale: float = 1.0) -> Any:
            drawn = torch.empty(size, device="cuda", dtype=torch.bfloat16)
            for part in drawn.view(size[0], -1) if len(size) > 2 else (drawn,):
                part.normal_(generator=generator).mul_(scale)
            return drawn

        hidden, intermediate = shape.hidden, shape.intermediate
        self.weights1 = normal(shape.experts, 2, intermediate, hidden, scale=hidden**-0.5)
        self.weights2 = normal(shape.experts, hidden, intermediate, scale=intermediate**-0.5)
        self.places = torch.cat(
            [torch.empty(0, dtype=torch.int64, device="cuda")]
            + [
                torch.arange(place, place + tokens, device="cuda")
                for place, tokens in zip(shape.pool_places(block_m), shape.tokens_per_expert, strict=True)
            ]
        )
        tokens = normal(shape.rows, hidden)
        rows = shape.pool_rows(block_m)
        self.scales: tuple[Any, ...] = ()
        #: What the operands are, in fp32: tokens in the order of the experts, and weights.
        self.exact = tuple(operand.float() for operand in (tokens, self.weights1, self.weights2))
        if shape.precision == "w8a8":
            tokens, of_tokens = quantise_rows(self.exact[0])
            self.weights1, of_weights1 = quantise_blocks(self.exact[1])
            self.weights2, of_weights2 = quantise_blocks(self.exact[2])
            of_pool = torch.full((shape.hidden_blocks, rows), float("nan"), device="cuda")
            of_pool[:, self.places] = of_tokens.T
            self.scales = of_pool, of_weights1, of_weights2
            self.exact = (
                tokens.float() * spread_rows(of_tokens, hidden),
                self.weights1.float() * spread_blocks(of_weights1, intermediate, hidden),
                self.weights2.float() * spread_blocks(of_weights2, hidden, intermediate),
            )
        self.pool = torch.full((rows, hidden), float("nan"), device="cuda").to(tokens.dtype)
        # By bytes: torch has no assignment by index of e4m3.
        self.pool.view(torch.uint8)[self.places] = tokens.view(torch.uint8)
        self.slots = -(-shape.rows // shape.ranks) + _SPARE_SLOTS
        drawn = torch.randperm(shape.ranks * self.slots, generator=generator, device="cuda")[: shape.rows]
        self.owner, self.slot = drawn // self.slots, drawn % self.slots
        self.sources = torch.zeros(len(self.pool), 2, dtype=torch.int32, device="cuda")
        self.sources[self.places, 0] = self.owner.int()
        self.sources[self.places, 1] = self.slot.int()

    def reference(self, *, rounded: bool = False) -> Any:
        """Outputs in fp32 of the routed rows, ``[rows, hidden]``.

        Args:
            rounded: with activations rounded to e4m3, as the kernel's are in w8a8.
        """
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        counts = torch.tensor(self.shape.tokens_per_expert, device="cuda")
        expert = torch.repeat_interleave(torch.arange(self.shape.experts, device="cuda"), counts)
        tokens, weights1, weights2 = self.exact
        out = torch.empty(self.shape.rows, self.shape.hidden, device="cuda")
        for one in expert.unique().tolist():
            mine = expert == one
            gate, up = (tokens[mine] @ weights.T for weights in weights1[one])
            activations = torch.nn.functional.silu(gate) * up
            out[mine] = (requantised(activations) if rounded else activations) @ weights2[one].T
        return out


class Case:
    """A kernel, its layer and poisoned destinations: this rank's in its GPU, the others' on ``path``."""

    def __init__(self, layer: Layer, config: MegaMoeConfig, path: StorePath = "local", **build: Any) -> None:
        import torch

        assert layer.block_m == config.block_m
        self.layer = layer
        shape = layer.shape
        if path == "peer":
            from cuda.core import Device

            enable_peer_access(gpu(), Device(1))
        self.kernel = MegaMoe(gpu(), shape, config, **build)
        self.buffers = [
            torch.full(
                (layer.slots, shape.hidden),
                POISON,
                dtype=torch.bfloat16,
                **(_OWNER[path] if rank != shape.rank else _OWN),
            )
            for rank in range(shape.ranks)
        ]
        self.prepared = self.kernel.prepare(
            MoeTensors(
                layer.pool.data_ptr(),
                layer.weights1.data_ptr(),
                layer.weights2.data_ptr(),
                layer.sources.data_ptr(),
                tuple(buffer.data_ptr() for buffer in self.buffers),
                scales=MoeScales(*(one.data_ptr() for one in layer.scales)) if layer.scales else None,
            )
        )

    def launch(self) -> None:
        self.kernel.launch(self.prepared, current_stream())

    def run(self) -> Any:
        """Launch on poisoned destinations, wait, and gather the routed rows' outputs, ``[rows, hidden]``."""
        for buffer in self.buffers:
            buffer.fill_(POISON)
        synchronize()
        self.launch()
        synchronize()
        self.kernel.require_finished(current_stream())
        return self.gathered()

    def gathered(self) -> Any:
        import torch

        slots = torch.stack([buffer.to("cuda") for buffer in self.buffers])
        return slots[self.layer.owner, self.layer.slot]

    def untouched(self) -> bool:
        """Whether no slot was written but those of rows."""
        import torch

        slots = torch.stack([buffer.to("cuda") for buffer in self.buffers])
        others = torch.ones(slots.shape[:2], dtype=torch.bool, device="cuda")
        others[self.layer.owner, self.layer.slot] = False
        return bool((slots[others] == POISON).all())
