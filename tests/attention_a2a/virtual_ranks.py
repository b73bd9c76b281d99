"""Several ranks of a group on one GPU, in one process: groups whose members meet as threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from tests.attention_a2a.thread_group import ThreadGroup
from xstage_tune.ops import close_group
from xstage_tune.ops.operator import GROUPS

_PATIENCE_S = 60.0


class VirtualGroup(ThreadGroup):
    """A group that the operator finds by its name, another one for each rank."""

    def __init__(self, name: str, rank: int, everyone: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(rank, everyone, barrier)
        self.group_name = f"{name}:{rank}"
        GROUPS[self.group_name] = self


class VirtualRanks:
    """``count`` ranks of one group, each with a stream; closed as a context."""

    def __init__(self, count: int) -> None:
        everyone: list[Any] = [None] * count
        barrier = threading.Barrier(count, timeout=_PATIENCE_S)
        self.groups = [VirtualGroup(f"virtual-{id(self)}", rank, everyone, barrier) for rank in range(count)]
        self.streams = [torch.cuda.Stream() for _ in range(count)]
        self._patches = [
            patch("torch.distributed.all_gather_object", _all_gather_object),
            patch("xstage_tune.ops.symmetric._symmetric_memory", lambda: _SYMMETRIC_MEMORY),
            *(
                patch(f"xstage_tune.ops.{room}.gpu_identity", lambda _: threading.current_thread().name)
                for room in ("group", "moe_group")
            ),
        ]

    def __enter__(self) -> VirtualRanks:
        for one in self._patches:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        torch.cuda.synchronize()
        for group in self.groups:
            close_group(group)
        for one in self._patches:
            one.stop()

    def __len__(self) -> int:
        return len(self.groups)

    def together(self, program: Callable[[int, VirtualGroup], Any]) -> list[Any]:
        """Run a program on all ranks at once, each on its stream: what calls that wait for all ranks need."""
        torch.cuda.synchronize()
        outcomes: list[Any] = [None] * len(self)

        def on_rank(rank: int) -> None:
            try:
                with torch.cuda.stream(self.streams[rank]), torch.no_grad():
                    outcomes[rank] = program(rank, self.groups[rank])
            except Exception as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=on_rank, args=(rank,)) for rank in range(len(self))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return outcomes


def _all_gather_object(outcomes: list[Any], value: Any, group: VirtualGroup) -> None:
    outcomes[:] = group.gather(value)


def _rendezvous(memory: Any, group: VirtualGroup) -> SimpleNamespace:
    return SimpleNamespace(buffer_ptrs=group.gather(memory.data_ptr()))


_SYMMETRIC_MEMORY = SimpleNamespace(empty=torch.empty, rendezvous=_rendezvous)
