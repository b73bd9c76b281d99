"""The closed forms of a case beside the simulator, from the same platform.

They are of the steady state of aligned bursts: where a run is near that, they and the simulator must agree.
"""

from __future__ import annotations

from statistics import median

import pytest

from tests.configs.cases import attention_config
from xstage_tune.estimates.schedule import visibility_latency
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES, cases_of, skeleton_of
from xstage_tune.experiments.emulation.prediction import ClosedForm, closed_form, simulated
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.families.attention_a2a.config import AttentionConfig, OutputStaging
from xstage_tune.families.binding import default_config
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform

GLM = "megamoe/glm-4.5"  # 24 Linear-1 tiles of a row for 40 Linear-2 tiles


def glm(platform: str, schedule: str, *, remote: float, slots: int = 2, coupled: bool) -> EmulationRequest:
    profile = load_platform(platform)
    workload = load_workload(GLM, ("tokens_per_rank=2048", f"remote_fraction={remote}", "precision=w4a8"))
    config = default_config(workload, profile)
    assert isinstance(config, MegaMoeConfig)
    return EmulationRequest(
        workload=workload,
        platform=profile,
        config=config.model_copy(update={"staging_depth": slots}),
        schedules=(schedule,),
        path=profile.path,
        completion_coupled=coupled,
    )


def attention(
    platform: str, tokens: int, *, staging: OutputStaging = "alias-v", coupled: bool
) -> EmulationRequest:
    profile = load_platform(platform)
    workload = load_workload("fa-a2a/paper", (f"tokens={tokens}",))
    return EmulationRequest(
        workload=workload,
        platform=profile,
        config=attention_config(output_staging=staging),
        schedules=("sequential",),
        path=profile.path,
        completion_coupled=coupled,
    )


def both(request: EmulationRequest) -> tuple[float, float, ClosedForm]:
    """Makespan and stall of an SM as simulated, ns, and the closed form."""
    case, *_ = cases_of(request)
    skeleton = skeleton_of(case, request)
    launches = simulated(skeleton, request.platform, seed=0)
    makespan_ns = median(launch.makespan_ns for launch in launches)
    stall_ns = median(launch.stall_ns for launch in launches)
    return makespan_ns, stall_ns, closed_form(case, skeleton, request)


@pytest.mark.parametrize("slots", [1, 2])  # register stores use no more
@pytest.mark.parametrize(
    ("platform", "remote"), [("h200-host", 0.125), ("h200-host", 0.03), ("h200-peer", 0.875)]
)
def test_a_coupled_layer_takes_what_equation_17_says(platform: str, remote: float, slots: int) -> None:
    """Interleaved: the short Linear-2 runs of a wave never reach the steady state."""
    makespan_ns, _, closed = both(glm(platform, "interleaved", remote=remote, slots=slots, coupled=True))
    assert closed.makespan_ns == pytest.approx(makespan_ns, rel=0.03)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize(("platform", "remote"), [("h200-host", 0.125), ("h200-peer", 0.875)])
def test_linear2_tiles_that_alternation_leaves_over_stall_as_in_a_wave(
    platform: str, remote: float, coupled: bool
) -> None:
    """Else the closed form has no stall at all, and the launch takes an eighth longer than it says.

    With it the launch takes less: what is left over begins with free slots and a drained path.
    """
    makespan_ns, stall_ns, closed = both(glm(platform, "alternating", remote=remote, coupled=coupled))
    assert stall_ns > 50e3
    assert closed.stall_ns > 50e3
    assert closed.makespan_ns == pytest.approx(makespan_ns, rel=0.07)


def test_a_coupled_launch_ends_when_all_it_stored_is_visible() -> None:
    """A layer of which so much leaves the GPU that the drain alone sets its time."""
    request = glm("h200-host", "interleaved", remote=0.875, coupled=True)
    case, *_ = cases_of(request)
    skeleton = skeleton_of(case, request)
    drain_ns = skeleton.streams.remote_bytes.sum() / request.platform.drain.bytes_per_s * 1e9
    assert (
        closed_form(case, skeleton, request).makespan_ns
        >= drain_ns + visibility_latency(request.platform).value
    )


@pytest.mark.parametrize("staging", ["alias-v", "dedicated-x1"])
@pytest.mark.parametrize("platform", ["paper-nvlink5", "h200-host", "h200-peer"])
def test_one_coupled_round_ends_when_its_drain_is_visible(platform: str, staging: OutputStaging) -> None:
    """No Q-loop covers any of it, whoever stores."""
    makespan_ns, stall_ns, closed = both(attention(platform, 2048, staging=staging, coupled=True))
    assert closed.makespan_ns == pytest.approx(makespan_ns, rel=0.005)
    assert stall_ns == closed.stall_ns == 0  # no mainloop follows


@pytest.mark.parametrize("platform", ["paper-nvlink5", "h200-host", "h200-peer"])
def test_one_coupled_round_exposes_its_drain_and_the_latency(platform: str) -> None:
    request = attention(platform, 2048, coupled=True)
    makespan_ns, _, closed = both(request)
    alone = next(case for case in cases_of(request) if case.name == WITHOUT_STORES)
    alone_ns = median(
        launch.makespan_ns for launch in simulated(skeleton_of(alone, request), request.platform, seed=0)
    )
    # The launch without remote stores spends T0 on local ones, which the equation does not know.
    assert closed.residual_ns == pytest.approx(makespan_ns - alone_ns, rel=0.15)


@pytest.mark.parametrize("platform", ["h200-host", "h200-peer"])
def test_the_burst_of_the_last_round_stalls_no_mainloop(platform: str) -> None:
    _, stall_ns, closed = both(attention(platform, 8192, coupled=True))
    assert closed.stall_ns == pytest.approx(stall_ns, rel=0.15)


@pytest.mark.parametrize("tokens", [8192, 32_768])
def test_a_skeleton_of_shared_tiles_has_a_stream_for_each_cta(tokens: int) -> None:
    """Parts of tiles at half the gap, and as many bytes in all."""
    whole = attention("h200-peer", tokens, staging="dedicated-x1", coupled=False)
    assert isinstance(whole.config, AttentionConfig)
    configs = (whole.config.model_copy(update={"kv_splits": parts}) for parts in (1, 2))
    requests = [whole.changed(config=config) for config in configs]
    one, two = (skeleton_of(cases_of(request)[0], request).streams for request in requests)
    assert (two.tiles, two.remote_bytes.sum()) == (2 * one.tiles, one.remote_bytes.sum())
    makespan_ns, _, closed = both(requests[1])
    assert closed.makespan_ns == pytest.approx(makespan_ns, rel=0.03)


def test_coupling_adds_the_latency_to_every_burst() -> None:
    request = attention("h200-peer", 8192, coupled=True)
    case, *_ = cases_of(request)
    closed = closed_form(case, skeleton_of(case, request), request)
    free = closed_form(case, skeleton_of(case, request), request.changed(completion_coupled=False))
    assert closed.residual_ns is not None
    assert free.residual_ns is not None
    assert closed.residual_ns - free.residual_ns > 2 * visibility_latency(request.platform).value


@pytest.mark.parametrize("platform", ["h200-host", "h200-peer"])
@pytest.mark.parametrize("tokens", [8192, 16384])
def test_a_skeleton_of_paced_stores_stores_at_once(platform: str, tokens: int) -> None:
    """Its issue role stores beside the mainloops: T_RS is equation 3's, and the last one ends the launch."""
    request = attention(platform, tokens, coupled=False)
    assert isinstance(request.config, AttentionConfig)
    paced = request.config.model_copy(update={"output_staging": "dedicated-x1"})
    assert paced.paces_stores
    request = request.changed(config=paced)
    makespan_ns, stall_ns, closed = both(request)
    case, *_ = cases_of(request)
    first, *_ = simulated(skeleton_of(case, request), request.platform, seed=0)
    assert closed.makespan_ns == pytest.approx(makespan_ns, rel=0.02)
    assert closed.issue_ns == pytest.approx(first.issue_mean_ns, rel=0.05)
    assert stall_ns == closed.stall_ns == 0
