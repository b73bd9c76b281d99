"""From a request to skeletons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.configs.cases import attention, attention_config, megamoe_config, moe
from tests.emulation.gpu import HOST
from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES, cases_of, skeleton_of
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.sweep import Sweep
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.megamoe import defaults
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.defaults import fitting_stages
from xstage_tune.families.megamoe.order import LINEAR2, megamoe_order
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.workload_files import load_workload

LAYER = moe(tokens_per_rank=512, routing={"kind": "zipf", "alpha": 1.0, "seed": 2})
CONFIG = megamoe_config(Schedule(kind="interleaved", lead_rows=3), block_m=64)
MOE = EmulationRequest(
    workload=LAYER,
    platform=HOST,
    config=CONFIG,
    schedules=("wave", "interleaved", "alternating"),
    path="host",
)
ATTENTION = MOE.changed(
    workload=attention(tokens=1000), config=attention_config(), schedules=("sequential", "spread")
)


def labels(request: EmulationRequest) -> list[str]:
    return [case.label for case in cases_of(request)]


def test_a_config_keeps_the_parameters_of_its_own_schedule() -> None:
    assert labels(MOE)[1:] == ["interleaved D=3", "alternating"]
    assert labels(MOE)[0].startswith("wave of ")


def test_both_placements_are_cases_of_their_own() -> None:
    both = MOE.changed(schedules=("alternating",), placements=("even", "share"))
    assert [(case.label, case.name) for case in cases_of(both)] == [
        ("alternating", "alternating"),
        ("alternating, by share", "alternating, by share"),
    ]


def test_a_lead_is_swept_without_a_word_twice() -> None:
    swept = MOE.changed(schedules=("interleaved",), sweep=Sweep("lead", (1.0, 5.0)))
    assert labels(swept) == ["interleaved D=1", "interleaved D=5"]


@pytest.mark.parametrize("workload", ["megamoe/mixtral-8x7b", "fa-a2a/paper"])
def test_tokens_mean_the_same_swept_and_set(workload: str) -> None:
    """Of a MoE layer those of each rank, of an attention the whole sequence."""
    request = ATTENTION if workload.startswith("fa") else MOE
    swept = request.changed(workload=load_workload(workload), sweep=Sweep("tokens", (1024.0,)))
    for case in cases_of(swept):
        assert case.workload == load_workload(workload, ["tokens=1024"])


def test_tokens_and_remote_fraction_change_the_workload() -> None:
    tokens = cases_of(MOE.changed(schedules=("wave",), sweep=Sweep("tokens", (64.0, 128.0))))
    assert [case.workload.tokens_per_rank for case in tokens] == [64, 128]  # type: ignore[union-attr]
    assert len({case.label for case in tokens}) == 2
    shares = cases_of(MOE.changed(schedules=("wave",), sweep=Sweep("remote_fraction", (0.0, 0.5))))
    skeletons = [skeleton_of(case, MOE) for case in shares]
    assert skeletons[0].streams.remote_bytes.sum() == 0
    stored = [float((s.local_bytes + s.streams.remote_bytes).sum()) for s in skeletons]
    assert stored[0] == stored[1]


def test_however_many_staging_slots_are_asked_for_few_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def counted(config: MegaMoeConfig, *rest: Any) -> int:
        tried.append(config.staging_depth)
        return fitting_stages(config, *rest)

    monkeypatch.setattr(defaults, "fitting_stages", counted)
    with pytest.raises(UsageError, match="staging slots do not fit"):
        cases_of(MOE.changed(schedules=("wave",), sweep=Sweep("staging_depth", (1e7,))))
    assert len(tried) < 64


def test_staging_slots_take_their_room_from_the_pipeline() -> None:
    depths = cases_of(MOE.changed(schedules=("wave",), sweep=Sweep("staging_depth", (1.0, 2.0, 3.0, 4.0))))
    configs = [case.config for case in depths]
    assert all(isinstance(config, MegaMoeConfig) for config in configs)
    assert [skeleton_of(case, MOE).staging_slots for case in depths] == [1, 2, 3, 4]


def test_more_slots_than_fit_say_how_many_would() -> None:
    deep = MOE.changed(schedules=("wave",), sweep=Sweep("staging_depth", (40.0,)))
    with pytest.raises(UsageError, match=r"40 staging slots do not fit .*: (\d+) do") as refusal:
        cases_of(deep)
    fitting = int(refusal.value.hint.split()[1].rstrip(","))
    cases_of(deep.changed(sweep=Sweep("staging_depth", (float(fitting),))))
    with pytest.raises(UsageError, match="do not fit"):
        cases_of(deep.changed(sweep=Sweep("staging_depth", (fitting + 1.0,))))


def test_a_skeleton_stores_every_byte_once_in_whole_16_bytes() -> None:
    for case in cases_of(MOE):
        skeleton = skeleton_of(case, MOE)
        remote, local = skeleton.streams.remote_bytes, skeleton.local_bytes
        assert not (remote % 16).any()
        assert not (local % 16).any()
        tokens = local_tokens_per_expert(LAYER, busiest_rank(LAYER)).sum()
        combine = tokens * LAYER.hidden * 2
        linear1 = tokens * LAYER.intermediate * LAYER.activation_bytes
        assert (remote + local).sum() == pytest.approx(combine + linear1, rel=1e-3)
        assert remote.sum() == pytest.approx(combine * 7 / 8, rel=0.01)


def test_the_order_that_the_device_is_told_is_that_of_the_streams() -> None:
    for case in cases_of(MOE.changed(placements=("even", "share"))):
        skeleton = skeleton_of(case, MOE)
        scheduling = skeleton.scheduling
        assert scheduling is not None
        order = megamoe_order(scheduling.grid, scheduling.schedule, scheduling.placement)
        assert np.array_equal(order.first, skeleton.streams.first)
        assert np.array_equal(order.layer == LINEAR2, skeleton.streams.signals_at_end)
        assert (scheduling.placement is None) == ("by share" not in case.label)


def test_placement_by_share_follows_the_measured_shares() -> None:
    assert HOST.arbitration is not None
    by_share = MOE.changed(schedules=("alternating",), placements=("share",), workload=moe())
    (case,) = cases_of(by_share)
    skeleton = skeleton_of(case, by_share)
    per_sm = np.bincount(skeleton.streams.sm_of_tile(), skeleton.streams.remote_bytes, skeleton.streams.sms)
    richest = max(HOST.arbitration.groups, key=lambda group: group.share / len(group.sm_ids))
    poorest = min(HOST.arbitration.groups, key=lambda group: group.share / len(group.sm_ids))
    assert per_sm[list(richest.sm_ids)].mean() > per_sm[list(poorest.sm_ids)].mean()


def test_given_times_are_the_spins() -> None:
    given = MOE.changed(given=GivenTimes(l1_ns=25e3, l2_ns=12e3, epilogue_ns=640.0), dependencies=False)
    skeleton = skeleton_of(cases_of(given)[0], given)
    assert set(skeleton.streams.mainloop_ns) == {25e3, 12e3}
    assert skeleton.streams.staging_ns.max() == pytest.approx(640.0)
    assert (skeleton.streams.waits_on == -1).all()
    q = ATTENTION.changed(given=GivenTimes(q_ns=70e3))
    assert skeleton_of(cases_of(q)[0], q).streams.mainloop_ns == pytest.approx(70e3)


def test_attention_has_a_launch_without_remote_stores_beside() -> None:
    *ordered, alone = cases_of(ATTENTION.changed(completion_coupled=True))
    assert [case.name for case in ordered] == ["sequential", "spread"]
    assert alone.name == WITHOUT_STORES
    coupled = ATTENTION.changed(completion_coupled=True)
    skeleton = skeleton_of(alone, coupled)
    assert not skeleton.streams.remote_bytes.any()
    assert not skeleton.completion_coupled
    assert skeleton_of(ordered[0], coupled).completion_coupled


def test_a_value_that_breaks_the_workload_names_the_sweep() -> None:
    huge = MOE.changed(schedules=("wave",), sweep=Sweep("tokens", (2.0**31 - 1,)))
    with pytest.raises(UsageError, match=r"^--sweep tokens=2147483647: "):
        cases_of(huge)


def test_a_launch_of_too_many_tiles_is_refused() -> None:
    large = MOE.changed(schedules=("wave",), sweep=Sweep("tokens", (16e6,)))
    with pytest.raises(UsageError, match="more than the 1,000,000 that are emulated"):
        skeleton_of(cases_of(large)[0], large)


def test_a_mainloop_longer_than_the_deadline_is_refused() -> None:
    long = ATTENTION.changed(workload=attention(heads=8, tokens=40_000_000), schedules=("spread",))
    with pytest.raises(UsageError, match="longer than the deadline of a spin"):
        skeleton_of(cases_of(long)[0], long)
