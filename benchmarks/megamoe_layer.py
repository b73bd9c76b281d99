"""Whole MoE layers of one rank in w8a8, from its tokens to its tokens' outputs: this kernel's and DeepGEMM's.

Both are given the same tokens, weights, scales and choices, and their outputs are compared. A layer is
dispatch, Linear-1, SwiGLU, Linear-2, Combine and the reduction over a token's experts. What DeepGEMM's launch
does besides: it finds from the choices whose rows are where, which this kernel is given as tables.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from in_turn import times_us

from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.moe_arguments import PULL, ROW_SOURCE, Dispatch, MoeScales, MoeTensors
from xstage_tune.cuda.moe_kernel import MegaMoe
from xstage_tune.cuda.moe_reduce import ReduceCombine
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.families.megamoe.check import TOLERANCE
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.dispatch import RankTables, rank_tables
from xstage_tune.families.megamoe.workload import MoeWorkload

Queue = Callable[[], None]
_BLOCK = 128
_ALL = 2**31 - 1  # launches for which a rank's tokens are there
#: Outputs of so many tokens are compared with fp32.
_SAMPLED = 16


def measure_layer(gpu: Gpu, workload: MoeWorkload, configs: dict[str, MegaMoeConfig]) -> dict[str, Any]:
    """Times of a layer under every config in turn, of its parts, and of DeepGEMM's.

    Raises:
        SystemExit: an output is wrong, or two configs' differ.
    """
    import torch

    (block_m,) = {config.block_m for config in configs.values()}
    rank = OneRank(gpu, workload, block_m)
    try:
        some = torch.arange(0, rank.tokens, max(1, rank.tokens // _SAMPLED), device="cuda")
        expected, first = rank.reference(some), None
        queues: dict[str, Queue] = {}
        for label, config in configs.items():
            parts, output = rank.of_this_kernel(config)
            queues |= {f"{label}/{part}": queue for part, queue in parts.items()}
            parts["whole"]()
            torch.cuda.synchronize()
            rank.require_finished()
            first = output if first is None else first
            if rank.error(output[some], expected) > 1 or not torch.equal(output, first):
                raise SystemExit(f"{label}: the output is wrong")
        errors = {"this kernel": rank.error(first[some], expected)}
        other = rank.of_deep_gemm()
        if other is not None:
            queues["DeepGEMM"], output = other
            queues["DeepGEMM"]()
            errors["DeepGEMM"] = rank.error(output[some], expected)
            if errors["DeepGEMM"] > 1:
                raise SystemExit("DeepGEMM was given other operands, or its output is wrong")
        taken_us = times_us(queues)
        rank.require_finished()
    finally:
        rank.close()
    deep_gemm_us = taken_us.pop("DeepGEMM", None)
    us: dict[str, dict[str, float]] = {label: {} for label in configs}
    for name, one_us in taken_us.items():
        label, part = name.split("/")
        us[label][part] = one_us
    return {"us": us, "deep_gemm_us": deep_gemm_us, "flops": rank.shape.flops, "errors": errors}


class OneRank:
    """A layer whose experts and tokens are all of one rank, balanced.

    Args:
        workload: with ``ep_degree`` 1, in w8a8.
        block_m: rows of a tile of all configs.
    """

    def __init__(self, gpu: Gpu, workload: MoeWorkload, block_m: int) -> None:
        import torch

        self.gpu, self.top_k, self.tokens = gpu, workload.top_k, workload.tokens_per_rank
        experts, hidden, intermediate = workload.experts, workload.hidden, workload.intermediate
        torch.manual_seed(0)
        rows = torch.arange(self.tokens * self.top_k, device="cuda").view(self.tokens, self.top_k)
        self.choices = rows[torch.randperm(self.tokens, device="cuda")] % experts
        self.router = torch.rand(self.tokens, self.top_k, device="cuda") / self.top_k
        self.x = _e4m3(self.tokens, hidden)
        self.of_x = _scales(2e-3, self.tokens, hidden // _BLOCK)
        self.weights1 = torch.stack([_e4m3(2 * intermediate, hidden) for _ in range(experts)])
        self.weights2 = torch.stack([_e4m3(hidden, intermediate) for _ in range(experts)])
        self.of_weights1 = _scales(1e-3, experts, 2 * intermediate // _BLOCK, hidden // _BLOCK)
        self.of_weights2 = _scales(1e-3, experts, hidden // _BLOCK, intermediate // _BLOCK)
        (self._tables,) = rank_tables([self.choices.cpu().numpy()], experts)
        self.shape = MoeShape(hidden, intermediate, self._tables.tokens_per_expert, precision="w8a8")
        self._opened: list[MegaMoe] = []
        self._kept: list[Any] = []
        self._tensors, self._combined = self._made(block_m)

    def of_this_kernel(self, config: MegaMoeConfig) -> tuple[dict[str, Queue], Any]:
        """What queues the whole layer, the layer without its reduction, and the kernel on a full pool.

        And the output.
        """
        import torch

        kernel = self._kernel(config, dispatch=True)
        full = self._kernel(config, dispatch=False)
        words = torch.zeros(1, dtype=torch.int32, device="cuda")
        output = torch.empty(self.tokens, self.shape.hidden, dtype=torch.bfloat16, device="cuda")
        self._kept += [words, output]
        prepared = kernel.prepare(replace(self._tensors, signals=(words.data_ptr(),)))
        on_full_pool = full.prepare(replace(self._tensors, dispatch=None))
        reduction = ReduceCombine(self.gpu.device, kernel)
        arguments = reduction.prepare(
            self._combined.data_ptr(),
            self.router.data_ptr(),
            output.data_ptr(),
            self.tokens,
            self.top_k,
            words.data_ptr(),
        )

        def layer() -> None:
            kernel.launch(prepared, _current())
            reduction.launch(arguments, _current())

        return {
            "whole": layer,
            "no reduction": lambda: kernel.launch(prepared, _current()),
            "full pool": lambda: full.launch(on_full_pool, _current()),
        }, output

    def of_deep_gemm(self) -> tuple[Queue, Any] | None:
        """The same of its fused layer, where it is installed."""
        if importlib.util.find_spec("deep_gemm") is None:
            return None
        import deep_gemm
        import torch
        import torch.distributed as dist

        if not dist.is_initialized():
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", "29551")
            dist.init_process_group("nccl", rank=0, world_size=1)
        shape = self.shape
        buffer = deep_gemm.get_symm_buffer_for_mega_moe(
            dist.group.WORLD, shape.experts, self.tokens, self.top_k, shape.hidden, shape.intermediate
        )
        buffer.x[: self.tokens].view(torch.uint8).copy_(self.x.view(torch.uint8))
        buffer.x_sf[: self.tokens].copy_(self.of_x)
        buffer.topk_idx[: self.tokens].copy_(self.choices)
        buffer.topk_weights[: self.tokens].copy_(self.router)
        weights = deep_gemm.transform_weights_for_mega_moe_sm90(
            (self.weights1, self.of_weights1), (self.weights2, self.of_weights2)
        )
        output = torch.empty(self.tokens, shape.hidden, device="cuda", dtype=torch.bfloat16)

        def queue() -> None:
            deep_gemm.fp8_mega_moe(output, *weights, buffer)

        return queue, output

    def reference(self, tokens: Any) -> Any:
        """Outputs of some tokens in fp32, from the same operands."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        x = self.x[tokens].float() * self.of_x[tokens].repeat_interleave(_BLOCK, -1)
        out = torch.zeros(len(tokens), self.shape.hidden, device="cuda")
        for expert in self.choices[tokens].unique().tolist():
            mine, choice = (self.choices[tokens] == expert).nonzero(as_tuple=True)
            weights1 = _times(self.weights1[expert], self.of_weights1[expert])
            weights2 = _times(self.weights2[expert], self.of_weights2[expert])
            gate, up = (x[mine] @ weights1.T).chunk(2, -1)
            made = torch.nn.functional.silu(gate) * up @ weights2.T
            out.index_add_(0, mine, made * self.router[tokens][mine, choice][:, None])
        return out

    def error(self, output: Any, expected: Any) -> float:
        """Of the norms, relative to what w8a8 is allowed."""
        return float((output.float() - expected).norm() / expected.norm()) / TOLERANCE["w8a8"]

    def require_finished(self) -> None:
        for kernel in self._opened:
            kernel.require_finished(self.gpu.stream)

    def close(self) -> None:
        for kernel in self._opened:
            kernel.close()

    def _kernel(self, config: MegaMoeConfig, *, dispatch: bool) -> MegaMoe:
        kernel = MegaMoe(self.gpu.device, self.shape, config, dispatch=dispatch)
        self._opened.append(kernel)
        return kernel

    def _made(self, block_m: int) -> tuple[MoeTensors, Any]:
        """Of a launch; and where Combine leaves its rows."""
        import torch

        shape, rows = self.shape, self.shape.pool_rows(block_m)
        sources, pulls, pull_rows = _on_pool(self._tables, shape, block_m)
        pool = torch.zeros(rows, shape.hidden, dtype=torch.uint8, device="cuda")
        of_pool = torch.zeros(shape.hidden_blocks, rows, device="cuda")
        of_x = torch.zeros(self.tokens, shape.token_scales, device="cuda")
        of_x[:, : shape.hidden_blocks] = self.of_x
        ready = torch.full((1,), _ALL, dtype=torch.int32, device="cuda")
        combined = torch.empty(shape.rows, shape.hidden, dtype=torch.bfloat16, device="cuda")
        tables = [_on_gpu(one) for one in (sources, pulls, pull_rows)]
        self._kept += [pool, of_pool, of_x, ready, combined, tables]
        dispatch = Dispatch(
            (self.x.data_ptr(),),
            (ready.data_ptr(),),
            tables[1].data_ptr(),
            tables[2].data_ptr(),
            len(pulls),
            (of_x.data_ptr(),),
        )
        return MoeTensors(
            pool.data_ptr(),
            self.weights1.data_ptr(),
            self.weights2.data_ptr(),
            tables[0].data_ptr(),
            (combined.data_ptr(),),
            dispatch=dispatch,
            scales=MoeScales(of_pool.data_ptr(), self.of_weights1.data_ptr(), self.of_weights2.data_ptr()),
        ), combined


def _on_pool(tables: RankTables, shape: MoeShape, block_m: int) -> tuple[Any, Any, Any]:
    """Sources, pulls and their rows as a launch reads them."""
    counts = np.asarray(tables.tokens_per_expert)
    ahead = np.asarray(shape.pool_places(block_m)) - (np.cumsum(counts) - counts)
    places = np.arange(shape.rows) + np.repeat(ahead, counts)
    sources = np.zeros(shape.pool_rows(block_m), ROW_SOURCE)
    sources["rank"][places], sources["slot"][places] = tables.rank, tables.slot
    pulls = np.zeros(len(tables.pulls), PULL)
    pulls["rank"], pulls["token"] = tables.pulls.T
    pulls["first_row"], pulls["rows"] = tables.pull_first[:-1], np.diff(tables.pull_first)
    return sources, pulls, places[tables.pull_rows].astype(np.uint32)


def _on_gpu(table: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(table).view(np.int32)).to("cuda")


def _current() -> Any:
    import torch
    from cuda.core import Stream

    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def _e4m3(rows: int, columns: int) -> Any:
    import torch

    values = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16).uniform_(-448, 448)
    return values.to(torch.float8_e4m3fn)


def _scales(most: float, *size: int) -> Any:
    """Which all differ, so that one in a wrong place makes a wrong result."""
    import torch

    return (0.5 + torch.rand(size, device="cuda") / 2) * most


def _times(weights: Any, scales: Any) -> Any:
    """A matrix in fp32."""
    return weights.float() * scales.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)
