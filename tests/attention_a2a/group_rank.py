"""One rank of a process group, in a process of its own: ``python -m tests.attention_a2a.group_rank``.

Prints a line of JSON for every step that it took.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import random_inputs, reference, relative_error
from xstage_tune.base.errors import XStageError
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops import attention_a2a, check_group, close_group

STORES = config(block_n=176, output_staging="alias-v")
COPIES = config(output_staging="dedicated-x1", store_flavour="tma")
SPLIT = config(block_n=144, output_staging="dedicated-x1", kv_splits=2)
EPOCHS = 6
_TIMEOUT_S = 10.0
LATE_TIMEOUT_S = 0.5
#: About a millisecond of the GPU, many times an epoch of these sizes.
_DELAY_CYCLES = 2_000_000


class Rank:
    """This process's share of attentions over the whole group."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.group = dist.group.WORLD
        self.ranks = self.group.size()

    def check(self, tokens: int, heads: int, head_dim: int, variant: AttentionConfig) -> dict[str, Any]:
        """Several epochs in a row, of which now one rank and now another is late to use its tokens."""
        inputs = [
            random_inputs(AttentionShape(tokens, self.ranks * heads, head_dim), seed)
            for seed in range(EPOCHS)
        ]
        mine = [[self._own_heads(tensor, heads) for tensor in tensors] for tensors in inputs]
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        results = []
        with torch.cuda.stream(stream):
            for epoch, tensors in enumerate(mine):
                tokens_of_rank = self.call(tensors, variant)
                if epoch % self.ranks == self.rank:
                    torch.cuda._sleep(_DELAY_CYCLES)
                results.append(tokens_of_rank)
        check_group(self.group)
        rows = -(-tokens // self.ranks)
        own_rows = slice(self.rank * rows, (self.rank + 1) * rows)
        expected = [reference(*tensors, own_rows) for tensors in inputs]
        return {
            "shapes": [list(result.shape) for result in results],
            "errors": [relative_error(*pair) for pair in zip(results, expected, strict=True)],
        }

    def close_and_check(self) -> dict[str, Any]:
        close_group(self.group)
        return self.check(997, 2, 128, STORES)

    def call(
        self, tensors: list[Any], variant: AttentionConfig = STORES, timeout_s: float = _TIMEOUT_S
    ) -> Any:
        q, k, v = tensors
        return attention_a2a(q, k, v, self.group, variant, timeout_s=timeout_s)

    def disagree(self) -> dict[str, Any]:
        """The last rank has fewer tokens than the others."""
        tokens = 501 if self.rank == self.ranks - 1 else 502
        return {"message": _message(lambda: self.call(self._inputs(tokens)))}

    def late(self) -> dict[str, Any]:
        """The last rank takes no part in the second call."""
        tensors = self._inputs(700)
        self.call(tensors)
        messages = []
        if self.rank != self.ranks - 1:
            self.call(tensors, timeout_s=LATE_TIMEOUT_S)
            torch.cuda.synchronize()
            messages = [_message(lambda: self.call(tensors)), _message(lambda: check_group(self.group))]
        self.meet()
        return {"messages": messages}

    def meet(self) -> None:
        """Wait for all ranks."""
        dist.all_gather_object([None] * self.ranks, None, group=self.group)

    def _inputs(self, tokens: int) -> list[Any]:
        return list(random_inputs(AttentionShape(tokens, 1, 128), seed=0))

    def _own_heads(self, tensor: Any, heads: int) -> Any:
        return tensor[:, self.rank * heads : (self.rank + 1) * heads].contiguous()


def _message(action: Callable[[], object]) -> str:
    """Of the error that ``action`` raises; empty if none."""
    try:
        action()
    except XStageError as error:
        return error.message
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("rendezvous", type=Path)
    arguments = parser.parse_args()
    torch.cuda.set_device(arguments.rank)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{arguments.rendezvous}",
        rank=arguments.rank,
        world_size=arguments.ranks,
        timeout=timedelta(seconds=40),
        device_id=torch.device("cuda", arguments.rank),
    )
    rank = Rank(arguments.rank)
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "stores": lambda: rank.check(997, 2, 128, STORES),
        "copies": lambda: rank.check(997, 2, 128, COPIES),
        "split tiles": lambda: rank.check(9001, 3, 128, SPLIT),
        "several rounds": lambda: rank.check(9001, 3, 64, STORES),
        "one token": lambda: rank.check(1, 1, 128, STORES),
        "disagree": rank.disagree,
        "closed and anew": rank.close_and_check,
        "late": rank.late,
    }
    for name, step in steps.items():
        print(json.dumps({"step": name, **step()}), flush=True)
    close_group(rank.group)
    rank.meet()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
