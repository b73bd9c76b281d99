"""A platform profile as the path that producers see."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.devices.simulator.drain import drain_model
from xstage_tune.errors import UsageError
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import Arbitration, ArbitrationGroup, PlatformProfile


@pytest.fixture(scope="module")
def paper() -> PlatformProfile:
    return load_platform("paper-nvlink5")


def with_groups(profile: PlatformProfile, unit_sms: int = 1) -> PlatformProfile:
    groups = (
        ArbitrationGroup(sm_ids=tuple(range(0, 148, 4)), share=0.4),
        ArbitrationGroup(sm_ids=tuple(sm for sm in range(148) if sm % 4), share=0.6),
    )
    arbitration = Arbitration(groups=groups, unit_sms=unit_sms, repeat_correlation=1.0, source="test")
    return profile.model_copy(update={"arbitration": arbitration})


def test_the_paper_platform_has_one_port(paper: PlatformProfile) -> None:
    drain = drain_model(paper)
    assert drain.producers == 148
    assert drain.capacity_bytes == 4_456_448
    assert drain.free_issue_ns(np.array([32_768.0])).tolist() == [760.0]
    assert set(drain.group_of_sm) == {0}


def test_producers_take_the_port_and_unit_of_their_sm(paper: PlatformProfile) -> None:
    drain = drain_model(with_groups(paper, unit_sms=2), producers=4, sm_ids=[4, 5, 7, 9])
    assert drain.group_of_sm == (0, 1, 1, 1)
    assert drain.group_share == (0.4, 0.6)
    assert drain.unit_of_sm == (0, 0, 1, 2)
    assert drain.producers == 4


def test_an_sm_without_a_group_is_named(paper: PlatformProfile) -> None:
    with pytest.raises(UsageError, match="no group for SM 200"):
        drain_model(with_groups(paper), producers=2, sm_ids=[0, 200])


def test_a_platform_without_q_is_refused(paper: PlatformProfile) -> None:
    with pytest.raises(UsageError, match="capacity Q"):
        drain_model(paper.model_copy(update={"capacity": ()}))
