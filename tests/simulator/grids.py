"""MegaMoE layers and schedules as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from xstage_tune.families.megamoe.order import (
    Alternating,
    ClampedLag,
    ExpertWave,
    Interleaved,
    MoeGrid,
    Schedule,
)
from xstage_tune.families.megamoe.placement import Placement


@st.composite
def grids(draw: st.DrawFn) -> MoeGrid:
    """Small layers: empty and ragged experts among them, alone or in pairs of SMs."""
    group = draw(st.sampled_from([1, 2]))
    return MoeGrid(
        tokens_per_expert=tuple(draw(st.lists(st.integers(0, 2000), min_size=1, max_size=6))),
        block_m=draw(st.sampled_from([16, 64, 128, 192])),
        l1_tiles=group * draw(st.integers(1, 6)),
        l2_tiles=group * draw(st.integers(1, 6)),
        sms=draw(st.integers(group, 24)),
        cta_group=group,
    )


def placements(grid: MoeGrid) -> st.SearchStrategy[Placement]:
    """Any weights that leave each layer an instance."""
    weights = st.lists(st.integers(0, 64), min_size=grid.instances, max_size=grid.instances).filter(any)
    return st.builds(Placement, weights.map(tuple), weights.map(tuple))


schedules: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(ExpertWave, st.integers(1, 8)),
    st.builds(Interleaved, st.integers(1, 60)),
    st.builds(Alternating, st.none() | st.integers(0, 30)),
    st.builds(ClampedLag),
)
