"""Ranks that share one GPU: dispatch, Combine, signals and the reduction together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attention_a2a.gpu import relative_error
from tests.megamoe_kernel.ranks import VirtualRanks
from tests.megamoe_kernel.shipped import VARIANTS, variant_words
from xstage_tune.base.errors import DeviceError
from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.families.megamoe.check import TOLERANCE
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.workload import Precision

pytestmark = pytest.mark.gpu

LAYER: dict[str, Any] = {"experts": 16, "top_k": 4, "hidden": 1024, "intermediate": 512}


@pytest.fixture
def opened() -> Iterator[list[VirtualRanks]]:
    """Ranks to be closed when the test ends."""
    made: list[VirtualRanks] = []
    yield made
    for ranks in made:
        ranks.close()


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_words)
@pytest.mark.parametrize(
    ("tokens", "skew"),
    [((300, 300, 300, 300), 0.0), ((1, 0, 701, 127), 0.0), ((500, 500), 2.0)],
    ids=["even", "a rank without tokens", "skewed"],
)
def test_every_ranks_output_is_right_and_the_same_bits_each_time(
    tokens: tuple[int, ...],
    skew: float,
    variant: tuple[Precision, MegaMoeConfig],
    opened: list[VirtualRanks],
) -> None:
    import torch

    precision, config = variant
    ranks = VirtualRanks(config, tokens, precision=precision, skew=skew, **LAYER)
    opened.append(ranks)
    expected = ranks.reference()
    first: list[Any] = []
    for launch in range(1, 4):
        ranks.poison()
        ranks.announce(launch)
        ranks.launch()
        outputs = [output.clone() for output in ranks.finish()]
        for output, right in zip(outputs, expected, strict=True):
            assert not len(output) or relative_error(output, right) < TOLERANCE[precision]
        first = first or outputs
        assert all(torch.equal(one, same) for one, same in zip(outputs, first, strict=True))


@pytest.mark.parametrize("precision", SHIPPED)
def test_a_token_goes_to_more_rows_than_there_are_lanes_for(
    precision: Precision, opened: list[VirtualRanks]
) -> None:
    """Dispatch has eight lanes a token; and rows of one piece, so that many tokens are on their way."""
    layer = LAYER | {"experts": 24, "top_k": 19, "hidden": 256, "precision": precision}
    ranks = VirtualRanks(SHIPPED[precision][0], (700,), **layer)
    opened.append(ranks)
    ranks.poison()
    ranks.announce(1)
    ranks.launch()
    for output, right in zip(ranks.finish(), ranks.reference(), strict=True):
        assert relative_error(output, right) < TOLERANCE[precision]


@pytest.mark.parametrize(
    "schedule",
    [Schedule(kind="wave", experts_per_wave=1), Schedule(kind="alternating"), Schedule(kind="clamped-lag")],
    ids=lambda schedule: schedule.kind,
)
@pytest.mark.parametrize("tickets", [False, True], ids=["dealt", "tickets"])
@pytest.mark.parametrize("precision", SHIPPED)
def test_a_rank_that_comes_late_is_waited_for(
    precision: Precision, tickets: bool, schedule: Schedule, opened: list[VirtualRanks]
) -> None:
    config = SHIPPED[precision][0].model_copy(update={"schedule": schedule})
    layer = LAYER | {"experts": 15, "precision": precision}
    ranks = VirtualRanks(config, (300, 200, 400), tickets=tickets, **layer)
    opened.append(ranks)
    ranks.poison()
    ranks.announce(1, late=(1,))
    ranks.launch()
    time.sleep(0.05)
    ranks.announce(1)
    for output, right in zip(ranks.finish(), ranks.reference(), strict=True):
        assert relative_error(output, right) < TOLERANCE[precision]


def test_a_rank_that_never_comes_is_named_and_the_next_launch_is_right(opened: list[VirtualRanks]) -> None:
    ranks = VirtualRanks(SHIPPED["bf16"][0], (300, 200, 400), timeout_s=0.1, **LAYER | {"experts": 15})
    opened.append(ranks)
    ranks.announce(1, late=(2,))
    ranks.launch()
    with pytest.raises(DeviceError, match=r"the tokens of rank 2 did not come: waited 0\.1 s for launch 1"):
        ranks.finish()
    for kernel in ranks.kernels[1:]:
        with pytest.raises(DeviceError, match="the tokens of rank 2 did not come"):
            kernel.require_finished(_stream(ranks))
    ranks.poison()
    ranks.announce(2)
    ranks.launch()
    for output, right in zip(ranks.finish(), ranks.reference(), strict=True):
        assert relative_error(output, right) < TOLERANCE["bf16"]


def _stream(ranks: VirtualRanks) -> Any:
    from cuda.core import Stream

    return Stream.from_handle(ranks.streams[0].cuda_stream)
