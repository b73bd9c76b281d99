"""The MoE kernel's host side without a GPU: what it refuses, the order it is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.emulation_kernels.host_scheduler import take_tickets, take_tiles
from xstage_tune.base.errors import DeviceError, ExitCode, UsageError
from xstage_tune.cuda.moe_arguments import Dispatch, MoeScales, MoeTensors
from xstage_tune.cuda.moe_kernel import MegaMoe, scheduling
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.families.megamoe.config import Schedule

SHAPE = MoeShape(512, 256, (300, 0, 129), ranks=2)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of it."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))


def test_other_gpus_are_told_what_is_needed() -> None:
    gpu: Any = SimpleNamespace(name="NVIDIA B200", compute_capability=SimpleNamespace(major=10, minor=0))
    with pytest.raises(DeviceError, match=r"NVIDIA B200 .* the MoE kernel needs 9\.0") as error:
        MegaMoe(gpu, SHAPE, SHIPPED["bf16"][0])
    assert error.value.exit_code is ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hidden": 516}, "hidden = 516 is not a multiple of 8"),
        ({"intermediate": 0}, "intermediate = 0"),
        ({"tokens_per_expert": ()}, "needs an expert"),
        ({"tokens_per_expert": (1, -1)}, "negative number of tokens"),
        ({"tokens_per_expert": (2**28, 1)}, "268,435,457 rows on one rank"),
        ({"ranks": 9}, "9 ranks: the kernel's table holds 1 to 8"),
        ({"rank": 2}, "rank 2 is not one of 2"),
        ({"hidden": 520, "precision": "w8a8"}, "hidden = 520 is not a multiple of 16"),
        ({"precision": "w4a8"}, "no MoE kernel of w4a8 yet, only of bf16 and w8a8"),
    ],
)
def test_sizes_out_of_range_are_named(sizes: dict[str, Any], words: str) -> None:
    given = {"hidden": 512, "intermediate": 256, "tokens_per_expert": (1,), "ranks": 2} | sizes
    with pytest.raises(UsageError, match=words):
        MoeShape(**given)


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        ({"pool": 0}, "pool is at 0x0"),
        ({"weights1": 0x1008}, "weights1 is at 0x1008"),
        ({"destinations": (0x1000,)}, "1 destinations for 2 ranks"),
        ({"destinations": (0x1000, 8)}, "destination of rank 1 is at 0x8"),
        ({"signals": (0x1000,)}, "1 signals for 2 ranks"),
        ({"dispatch": Dispatch((0x1000,), (0x1000, 0x2000), 0x1000, 0x1000, 1)}, "1 origins for 2 ranks"),
        ({"scales": MoeScales(0x1000, 0x1000, 0x1000)}, "operands of bf16 have no scales"),
    ],
)
def test_tensors_that_do_not_fit_are_named(addresses: dict[str, Any], words: str) -> None:
    given = dict.fromkeys(("pool", "weights1", "weights2", "sources"), 4096)
    with pytest.raises(UsageError, match=words):
        MoeTensors(**(given | {"destinations": (0x1000, 0x2000)} | addresses)).check(SHAPE)


def test_scales_are_asked_for_where_operands_are_e4m3() -> None:
    scaled = replace(SHAPE, precision="w8a8")
    given = dict.fromkeys(("pool", "weights1", "weights2", "sources"), 4096)
    tensors = MoeTensors(**given, destinations=(0x1000, 0x2000))
    with pytest.raises(UsageError, match="operands of w8a8 have scales"):
        tensors.check(scaled)
    with pytest.raises(UsageError, match="scales of weights2 is at 0x8"):
        replace(tensors, scales=MoeScales(0x1000, 0x1000, 8)).check(scaled)


def test_a_tokens_scales_are_whole_units_of_16_bytes() -> None:
    shape = MoeShape(1408, 512, (1,), precision="w8a8")
    assert (shape.hidden_blocks, shape.token_scales, shape.intermediate_blocks) == (11, 12, 4)
    assert (SHAPE.hidden_blocks, SHAPE.token_scales) == (0, 0)


def test_an_experts_rows_begin_at_a_whole_tile() -> None:
    shape = MoeShape(512, 256, (130, 0, 1, 128))
    assert shape.pool_places(128) == [0, 256, 256, 384]
    assert shape.pool_rows(128) == 512
    assert MoeShape(512, 256, (0, 0)).pool_rows(128) == 128  # a tensor map of no rows is none


@pytest.mark.parametrize("kind", ["wave", "interleaved", "alternating", "clamped-lag"])
def test_tickets_and_dealt_tiles_are_the_same_set(kind: Any) -> None:
    parameter = {"wave": {"experts_per_wave": 1}, "interleaved": {"lead_rows": 2}}.get(kind, {})
    config = SHIPPED["bf16"][0].model_copy(update={"schedule": Schedule(kind=kind, **parameter)})
    tiles = 5 * (2 + 2)  # rows, and the columns of both layers
    dealt = np.concatenate(take_tiles(scheduling(SHAPE, config, 3, tickets=False)))
    by_ticket = take_tickets(
        scheduling(SHAPE, config, 3, tickets=True), np.arange(tiles + 1, dtype=np.uint32)
    )
    assert len(by_ticket) == len(dealt) == tiles
    assert {tile.tobytes() for tile in by_ticket} == {tile.tobytes() for tile in dealt}


def test_alternation_by_tickets_warms_up_for_all_ctas() -> None:
    """Or a Linear-2 tile would be taken while the other CTAs are at its row's Linear-1."""
    config = SHIPPED["bf16"][0].model_copy(update={"schedule": Schedule(kind="alternating")})
    shape = MoeShape(1024, 512, (4000,))
    tickets = scheduling(shape, config, 8, tickets=True)
    first = take_tickets(tickets, np.arange(32, dtype=np.uint32))
    dealt = scheduling(shape, config, 8, tickets=False)
    warmup = int(dealt.tables().parameters["parameter"][0])
    assert warmup >= 1
    assert first["layer"].tolist()[: 8 * warmup + 2] == [1] * (8 * warmup) + [2, 1]
