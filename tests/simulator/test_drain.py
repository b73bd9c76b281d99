"""A platform profile as the path that producers see."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.base.errors import UsageError
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import Arbitration, ArbitrationGroup, PlatformProfile
from xstage_tune.simulator.drain import drain_model


@pytest.fixture(scope="module")
def paper() -> PlatformProfile:
    return load_platform("paper-nvlink5")


def with_groups(profile: PlatformProfile, *shares_and_branches: tuple[float, int]) -> PlatformProfile:
    """Group i has the SMs whose id leaves remainder i."""
    count = len(shares_and_branches)
    groups = tuple(
        ArbitrationGroup(sm_ids=tuple(range(rest, 148, count)), share=share, branch=branch)
        for rest, (share, branch) in enumerate(shares_and_branches)
    )
    arbitration = Arbitration(groups=groups, repeat_correlation=1.0, source="test")
    return profile.model_copy(update={"arbitration": arbitration})


def test_the_paper_platform_has_one_branch(paper: PlatformProfile) -> None:
    drain = drain_model(paper)
    assert drain.producers == 148
    assert drain.capacity_bytes == 4_456_448
    assert drain.free_issue_ns(np.array([32_768.0])).tolist() == [760.0]
    assert set(drain.branch_of_sm) == {0}


def test_producers_take_the_port_and_branch_of_their_sm(paper: PlatformProfile) -> None:
    platform = with_groups(paper, (0.3, 7), (0.2, 2), (0.1, 7), (0.4, 7))
    drain = drain_model(platform, producers=4, sm_ids=[4, 9, 11, 8])
    assert drain.branch_of_sm == (1, 0, 1, 1)
    # The third group has no producer, yet counts in its branch's share.
    assert drain.branch_share == pytest.approx((0.2, 0.8))
    assert drain.port_of_sm == (0, 1, 2, 0)
    assert drain.port_weight[2] / drain.port_weight[0] == pytest.approx(4 / 3, abs=0.05)


def test_ports_that_differ_by_noise_weigh_the_same(paper: PlatformProfile) -> None:
    drain = drain_model(with_groups(paper, (0.248, 0), (0.252, 0), (0.251, 1), (0.249, 1)))
    assert set(drain.port_weight) == {1.0}


def test_an_sm_without_a_group_is_named(paper: PlatformProfile) -> None:
    with pytest.raises(UsageError, match="no group for SM 200"):
        drain_model(with_groups(paper, (0.4, 0), (0.6, 0)), producers=2, sm_ids=[0, 200])


def test_a_platform_without_q_is_refused(paper: PlatformProfile) -> None:
    with pytest.raises(UsageError, match="capacity Q"):
        drain_model(paper.model_copy(update={"capacity": ()}))
