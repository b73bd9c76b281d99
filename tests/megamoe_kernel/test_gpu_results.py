"""The MoE kernel on a GPU: right against fp32, equal bit for bit over schedules, and nothing else written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attention_a2a.gpu import current_stream, relative_error, require_path
from tests.megamoe_kernel.gpu import Case, Layer
from xstage_tune.base.errors import DeviceError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.spans import moe_spans

pytestmark = pytest.mark.gpu

#: bf16 operands and activations: their rounding is near 3e-3.
TOLERANCE = 1e-2
SCHEDULES = (
    Schedule(kind="wave", experts_per_wave=1),
    Schedule(kind="wave", experts_per_wave=4),
    Schedule(kind="interleaved", lead_rows=1),
    Schedule(kind="interleaved", lead_rows=8),
    Schedule(kind="alternating"),
    Schedule(kind="clamped-lag"),
)
SHAPES = {
    "ragged": MoeShape(512, 256, (130, 0, 1, 127, 256, 64, 211), ranks=4, rank=1),
    "no multiples of a tile": MoeShape(520, 200, (1, 300, 0, 77), ranks=3),
    "all on one expert": MoeShape(1024, 512, (0, 0, 2111), ranks=8, rank=3),
    "more tiles than SMs": MoeShape(1024, 512, (700, 900, 33, 1500), ranks=2),
    "one row": MoeShape(256, 128, (0, 1), ranks=2, rank=1),
}


def variant_words(config: MegaMoeConfig) -> str:
    return f"{config.tile_label}, {config.store_flavour}"


@pytest.fixture
def cases() -> Iterator[list[Case]]:
    """Kernels to be closed when the test ends."""
    opened: list[Case] = []
    yield opened
    for case in opened:
        case.kernel.close()


@pytest.mark.parametrize("config", SHIPPED, ids=variant_words)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_schedule_gives_the_same_bits_which_are_right(
    shape: MoeShape, config: MegaMoeConfig, cases: list[Case]
) -> None:
    import torch

    layer = Layer(shape, config.block_m, seed=shape.rows)
    expected = layer.reference()
    first = None
    for schedule in SCHEDULES:
        for tickets in (True, False):
            case = Case(layer, config.model_copy(update={"schedule": schedule}), tickets=tickets, timeout_s=5)
            cases.append(case)
            outputs = [case.run() for _ in range(2)]
            assert relative_error(outputs[0], expected) < TOLERANCE
            assert case.untouched()
            first = outputs[0] if first is None else first
            assert all(torch.equal(one, first) for one in outputs)


@pytest.mark.parametrize("config", SHIPPED, ids=variant_words)
@pytest.mark.parametrize("path", ["host", "peer"])
def test_rows_arrive_wherever_their_rank_keeps_them(
    path: StorePath, config: MegaMoeConfig, cases: list[Case]
) -> None:
    require_path(path)
    layer = Layer(SHAPES["more tiles than SMs"], config.block_m)
    case = Case(layer, config, path, timeout_s=5)
    cases.append(case)
    assert relative_error(case.run(), layer.reference()) < TOLERANCE
    assert case.untouched()


@pytest.mark.parametrize("tickets", [True, False], ids=["tickets", "dealt"])
def test_launches_follow_each_other_without_a_reset(tickets: bool, cases: list[Case]) -> None:
    """Counters and tickets are zero again when a launch ends; a launch changes no other's result."""
    import torch

    layer = Layer(SHAPES["more tiles than SMs"], SHIPPED[0].block_m)
    case = Case(layer, SHIPPED[0], tickets=tickets, timeout_s=5)
    cases.append(case)
    first = case.run()
    for _ in range(20):
        case.launch()
    assert torch.equal(case.run(), first)


@pytest.mark.parametrize("tickets", [True, False], ids=["tickets", "dealt"])
def test_a_row_that_never_comes_is_named_and_the_next_launch_is_right(
    tickets: bool, cases: list[Case]
) -> None:
    layer = Layer(SHAPES["more tiles than SMs"], SHIPPED[0].block_m)
    case = Case(layer, SHIPPED[0], tickets=tickets, timeout_s=0.05, withheld_row=9)
    cases.append(case)
    with pytest.raises(
        DeviceError, match=r"rank 0 waited 0\.05 s for row block 9: 0 of its 4 Linear-1 tiles"
    ):
        case.run()
    case.kernel.require_finished(current_stream())  # said once
    case.prepared.arguments["withheld_row"] = 2**32 - 1
    assert relative_error(case.run(), layer.reference()) < TOLERANCE


def test_a_layer_to_which_nothing_was_routed_stores_nothing(cases: list[Case]) -> None:
    layer = Layer(MoeShape(512, 256, (0, 0), ranks=2), SHIPPED[0].block_m)
    case = Case(layer, SHIPPED[0], timeout_s=5)
    cases.append(case)
    assert case.run().numel() == 0
    assert case.untouched()


@pytest.mark.parametrize("config", SHIPPED[:2], ids=lambda config: config.store_flavour)
def test_stores_all_at_once_or_spread_leave_the_same_bits(config: MegaMoeConfig, cases: list[Case]) -> None:
    import torch

    layer = Layer(SHAPES["more tiles than SMs"], config.block_m)
    cases += [Case(layer, config, "host", pace=pace, timeout_s=5) for pace in (0.0, 1.0)]
    at_once, spread = (case.run() for case in cases)
    assert torch.equal(at_once, spread)


@pytest.mark.parametrize("config", SHIPPED, ids=variant_words)
def test_every_tile_is_recorded_once_by_each_role(config: MegaMoeConfig, cases: list[Case]) -> None:
    layer = Layer(SHAPES["more tiles than SMs"], config.block_m)
    case = Case(layer, config, record_spans=True, timeout_s=5)
    cases.append(case)
    assert relative_error(case.run(), layer.reference()) < TOLERANCE
    table = case.kernel.read_spans(current_stream())
    assert table.dropped() == 0
    found, grid = moe_spans(table), layer.shape.grid(config, case.kernel.ctas)
    assert found.l1_ns.size == 2 * grid.rows * grid.l1_tiles
    assert found.l2_ns.size == found.issue_ns.size == 2 * grid.rows * grid.l2_tiles
    assert found.slot_wait_ns.size == found.operand_wait_ns.size == found.l1_ns.size + found.l2_ns.size
    assert 0 < found.stall_ns < found.launch_ns
