"""What a recording variant records."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import Case, current_stream
from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import SpanKind
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.families.attention_a2a.config import AttentionConfig

pytestmark = pytest.mark.gpu

#: 201 tiles of 128 rows, 135 of 192: one or two a CTA.
SHAPE = AttentionShape(tokens=8500, heads=3, head_dim=128)


@pytest.mark.parametrize(
    "variant",
    [
        config(block_n=176, output_staging="alias-v"),
        config(block_m=192),
        config(block_n=112, output_staging="dedicated-x1"),
        config(output_staging="dedicated-x1", store_flavour="tma"),
        config(block_n=144, output_staging="dedicated-x1", kv_splits=2),
    ],
    ids=lambda variant: variant.label,
)
def test_three_spans_a_tile_and_warpgroup_that_finishes_it_without_gaps(variant: AttentionConfig) -> None:
    case = Case(SHAPE, variant, record_spans=True)
    case.run()
    table = case.kernel.read_spans(current_stream())
    warpgroups = variant.block_m // variant.kv_splits // 64
    parts = 3 * -(-SHAPE.tokens // variant.block_m) * variant.kv_splits
    assert table.dropped() == 0
    assert len(table.lanes) == case.kernel.ctas * warpgroups
    assert int(table.lanes["issued"].sum()) == parts * warpgroups
    spans = table.spans
    assert len(spans) == 3 * parts * warpgroups
    assert (spans["role"] == spans["lane"] % warpgroups).all()
    kinds = [SpanKind.MAINLOOP, SpanKind.STAGING_STALL, SpanKind.ISSUE]
    for lane in range(len(table.lanes)):
        mine = spans[spans["lane"] == lane]
        assert mine["kind"].tolist() == kinds * (len(mine) // 3)
        assert mine["index"].tolist() == np.repeat(np.arange(len(mine) // 3), 3).tolist()
        ends = mine["begin_ticks"] + mine["duration_ticks"]
        assert (ends[:-1] == mine["begin_ticks"][1:]).all()


def test_a_variant_that_records_nothing_says_so() -> None:
    case = Case(AttentionShape(128, 1, 128), config())
    with pytest.raises(UsageError, match="records no spans"):
        case.kernel.read_spans(current_stream())
