"""Both bounds of the design test, the limits that satisfy them, and where numbers come from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audit.cases import capacity_point, issue_point, paper_platform
from tests.configs.cases import attention_config
from xstage_tune.audit.run import audit
from xstage_tune.base.errors import UsageError
from xstage_tune.estimates.bursts import BurstTerms, burst_terms
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.estimate import AttentionEstimate
from xstage_tune.families.binding import default_config
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile, SplitTile

FLASH = "megamoe/deepseek-v4-flash"


def terms(platform: PlatformProfile, producers: int, size: float) -> BurstTerms:
    return burst_terms(platform, "st.v4", producers, Figure(size, Basis.DERIVED, "a tile"))


def passes(platform: PlatformProfile, producers: int, size: float, gap_ns: float) -> bool:
    burst = terms(platform, producers, size)
    return burst.rate_ok(gap_ns) and burst.capacity_ok


@settings(deadline=None, max_examples=25)
@given(gap_ns=st.floats(0, 12e3), kib=st.integers(8, 96))
def test_largest_burst_is_the_last_that_passes(gap_ns: float, kib: int) -> None:
    platform, size = paper_platform(), kib * 1024
    largest = terms(platform, 148, size).largest_burst_bytes(gap_ns)
    if largest is None:
        assert not passes(platform, 148, 16, gap_ns)
    else:
        assert passes(platform, 148, largest.value, gap_ns)
        assert largest.value == size or not passes(platform, 148, largest.value + 16, gap_ns)


@settings(deadline=None, max_examples=25)
@given(gap_ns=st.floats(0, 12e3), kib=st.integers(8, 96))
def test_most_producers_is_the_last_count_that_passes(gap_ns: float, kib: int) -> None:
    platform, size = paper_platform(), kib * 1024
    most = terms(platform, 148, size).most_producers(gap_ns)
    assert most is not None  # one producer's burst drains while it is issued
    assert passes(platform, int(most.value), size, gap_ns)
    assert most.value == 148 or not passes(platform, int(most.value) + 1, size, gap_ns)


def test_a_burst_that_fits_is_its_own_limit() -> None:
    burst = terms(paper_platform(), 148, 1024)
    assert burst.largest_burst_bytes(50e3) == Figure(
        1024, Basis.ASSUMED, "both bounds of equation 10, solved"
    )


@pytest.mark.parametrize(
    ("producers", "size", "basis"),
    [
        (64, 8192, Basis.MEASURED),
        (64, 10000, Basis.DERIVED),
        (100, 8192, Basis.DERIVED),
        (64, 4096, Basis.ASSUMED),
        (64, 65536, Basis.ASSUMED),
        (8, 8192, Basis.ASSUMED),
        # Beyond the one point of 148 producers, whatever those of 64 span.
        (148, 16384, Basis.ASSUMED),
        (100, 16384, Basis.ASSUMED),
    ],
)
def test_issue_time_is_as_good_as_the_points_around_it(producers: int, size: int, basis: Basis) -> None:
    platform = paper_platform(
        issue=[issue_point(64, 8192, 200), issue_point(64, 32768, 700), issue_point(148, 8192, 210)]
    )
    free = terms(platform, producers, size).free_issue_ns
    assert free.basis is basis
    assert (free.origin == "measured at 8192") == (basis is Basis.MEASURED)


@pytest.mark.parametrize(
    ("producers", "basis"),
    [(64, Basis.MEASURED), (148, Basis.MEASURED), (100, Basis.DERIVED), (8, Basis.ASSUMED)],
)
def test_capacity_is_as_good_as_the_knees_around_it(producers: int, basis: Basis) -> None:
    platform = paper_platform(capacity=[capacity_point(64, 2e6), capacity_point(148, 4e6)])
    assert terms(platform, producers, 8192).capacity_bytes.basis is basis


def test_a_fitted_law_of_capacity_is_derived_even_at_a_knee() -> None:
    law = {"flavour": "st.v4", "law": "linear", "scale_bytes": 3e4, "rms_relative_error": 0.01}
    platform = paper_platform(capacity=[capacity_point(148, 4e6)], capacity_law=[law])
    capacity = terms(platform, 148, 8192).capacity_bytes
    assert (capacity.value, capacity.basis) == (148 * 3e4, Basis.DERIVED)
    assert "linear law" in capacity.origin


def test_a_result_is_as_weak_as_its_weakest_input() -> None:
    measured, assumed = Figure(1, Basis.MEASURED, ""), Figure(1, Basis.ASSUMED, "")
    assert derived(2, "", measured).basis is Basis.DERIVED
    assert derived(2, "", measured, assumed).basis is Basis.ASSUMED


def test_a_layer_with_two_violated_bounds_is_told_to_interleave_first() -> None:
    found = audit(load_workload(FLASH), paper_platform())
    assert (found.verdict, found.rate_ok, found.capacity_ok) == ("reshape", False, False)
    kinds = [action.kind for action in found.actions]
    assert kinds == ["interleave", "smaller_bursts", "smaller_tile", "fewer_producers", "search"]
    lead, largest, *_ = (action.limit for action in found.actions)
    assert lead is not None
    assert lead.value == 12  # two D_knee of 4.6 rows, and half of one
    assert largest is not None
    assert passes(found.platform, 148, largest.value, found.predicted["interleaved"].gap_ns.value)


def test_an_interleaved_layer_that_hides_a_violation_is_told_how_to_pass_the_test_too() -> None:
    workload = load_workload(FLASH)
    config = default_config(workload, paper_platform())
    schedule = Schedule(kind="interleaved", lead_rows=5)
    found = audit(workload, paper_platform(), config.model_copy(update={"schedule": schedule}))
    assert (found.rate_ok, found.capacity_ok) == (True, False)
    assert [action.kind for action in found.actions] == [
        "piggyback",
        "smaller_bursts",
        "smaller_tile",
        "fewer_producers",
    ]
    assert "local staging hides" in found.actions[1].text


def test_an_advised_tile_runs_and_passes() -> None:
    workload = load_workload(FLASH)
    config = default_config(workload, paper_platform())
    schedule = Schedule(kind="interleaved", lead_rows=10)
    found = audit(workload, paper_platform(), config.model_copy(update={"schedule": schedule}))
    advised = next(action.config for action in found.actions if action.kind == "smaller_tile")
    assert isinstance(advised, MegaMoeConfig)
    assert advised.block_n == 64
    smaller = audit(workload, paper_platform(), advised)
    assert smaller.design_test_ok


def test_no_tile_is_advised_where_none_is_legal() -> None:
    """Half of a 64-column tile would fit, but the MMA has at least 64 rows."""
    workload, platform = load_workload(FLASH), paper_platform(capacity=[capacity_point(148, 1e6)])
    config = default_config(workload, platform)
    schedule = Schedule(kind="interleaved", lead_rows=10)
    small = config.model_copy(update={"schedule": schedule, "block_n": 64})
    shrink = next(a for a in audit(workload, platform, small).actions if a.kind == "smaller_bursts")
    assert "store a tile in parts over its mainloop" in shrink.text
    assert "block_n" not in shrink.text


@pytest.mark.parametrize(("kind", "like"), [("clamped-lag", "wave"), ("alternating", "interleaved")])
def test_todays_schedules_are_audited_by_the_gap_of_their_runs(kind: str, like: str) -> None:
    """This layer has as many Linear-1 as Linear-2 tiles, so 1:1 is the interleaved ratio."""
    workload = load_workload(FLASH)
    config = default_config(workload, paper_platform())
    schedule = Schedule.model_validate({"kind": kind})
    found = audit(workload, paper_platform(), config.model_copy(update={"schedule": schedule}))
    assert found.schedule == kind
    assert found.gap_ns.value == found.predicted[like].gap_ns.value


@pytest.mark.parametrize("lead_rows", [1, 4])
def test_a_lead_below_the_knee_has_the_gap_of_the_wave(lead_rows: int) -> None:
    """D_knee is 4.6: from 5 rows on Linear-2 no longer catches up."""
    workload = load_workload(FLASH)
    config = default_config(workload, paper_platform())
    schedule = Schedule(kind="interleaved", lead_rows=lead_rows)
    found = audit(workload, paper_platform(), config.model_copy(update={"schedule": schedule}))
    wave = found.predicted["wave"]
    assert (found.verdict, found.rate_ok, found.starved) == ("reshape", False, True)
    assert (found.gap_ns.value, found.predicted[found.schedule].stall_ns.value) == (
        wave.gap_ns.value,
        wave.stall_ns.value,
    )
    assert found.predicted["interleaved"].rate_ok
    assert found.actions[0].kind == "raise_lead"
    assert "raise the lead to at least 5 rows" in found.actions[0].text


def test_a_short_lead_is_told_of_even_where_the_bounds_hold() -> None:
    workload = load_workload(FLASH)
    platform = paper_platform()
    fast = platform.model_copy(update={"drain": platform.drain.model_copy(update={"bytes_per_s": 9e12})})
    config = default_config(workload, fast)
    schedule = Schedule(kind="interleaved", lead_rows=1)
    found = audit(workload, fast, config.model_copy(update={"schedule": schedule}))
    assert found.verdict == "piggyback"
    assert [action.kind for action in found.actions] == ["piggyback", "raise_lead"]


def test_a_short_sequence_on_a_slow_path_must_reshape() -> None:
    platform = paper_platform()
    slow = platform.model_copy(update={"drain": platform.drain.model_copy(update={"bytes_per_s": 50e9})})
    found = audit(load_workload("fa-a2a/paper"), slow)
    assert (found.verdict, found.rate_ok) == ("reshape", False)
    assert found.actions[0].kind == "longer_sequence"
    tokens = found.actions[0].limit
    assert tokens is not None
    longer = load_workload("fa-a2a/paper", [f"tokens={int(tokens.value)}"])
    assert audit(longer, slow).rate_ok
    assert not audit(load_workload("fa-a2a/paper", [f"tokens={int(tokens.value) - 128}"]), slow).rate_ok


@settings(deadline=None, max_examples=20)
@given(
    tokens=st.sampled_from([1, 7, 64, 1024, 8192]),
    alpha=st.just(0.0) | st.floats(1e-9, 3),
    precision=st.sampled_from(["bf16", "w8a8", "w4a8"]),
    drain=st.floats(20e9, 2e12),
)
def test_interleaving_never_hurts_and_a_held_rate_bound_never_saturates(
    tokens: int, alpha: float, precision: str, drain: float
) -> None:
    routing = ["routing.kind=zipf", f"routing.alpha={alpha}"]
    keys = [f"tokens_per_rank={tokens}", f"precision={precision}", *routing]
    platform = paper_platform()
    platform = platform.model_copy(update={"drain": platform.drain.model_copy(update={"bytes_per_s": drain})})
    found = audit(load_workload("megamoe/glm-4.5", keys), platform)
    wave, interleaved = found.predicted["wave"], found.predicted["interleaved"]
    assert interleaved.stall_ns.value <= wave.stall_ns.value + 1e-6
    assert interleaved.issue_ns.value <= wave.issue_ns.value
    for prediction in found.predicted.values():
        assert prediction.rate_ok == (prediction.injection_bytes_per_s.value <= drain * (1 + 1e-12))
        assert prediction.residual_ns.value <= prediction.completion_coupled.residual_ns.value + 1e-6


def test_one_token_makes_a_burst_of_one_row() -> None:
    found = audit(load_workload(FLASH, ["tokens_per_rank=1"]), paper_platform())
    assert isinstance(found.config, MegaMoeConfig)
    assert found.burst.burst_bytes.value == found.config.block_n * 2 * 7 / 8
    assert found.verdict == "piggyback"


def test_one_token_of_attention_takes_a_whole_kv_tile_and_has_no_drain_to_hide() -> None:
    found = audit(load_workload("fa-a2a/paper", ["tokens=1"]), paper_platform())
    assert found.gap_ns.value == 790
    predicted = found.predicted["piggyback"]
    assert predicted.hiding_ratio is None
    assert predicted.completion_coupled.hiding_ratio is None
    assert found.burst.free_issue_ns.basis is Basis.ASSUMED


@pytest.mark.parametrize(("tokens", "tiles"), [(128, 1), (129, 2), (8192, 64), (8193, 65)])
def test_a_q_loop_is_whole_kv_tiles(tokens: int, tiles: int) -> None:
    found = audit(load_workload("fa-a2a/paper", [f"tokens={tokens}"]), paper_platform())
    assert found.gap_ns.value == tiles * 790


def split_tile(platform: PlatformProfile) -> SplitTile:
    """Of the 128x128 tile of head dim 128."""
    assert platform.compute is not None
    (tile,) = (
        tile
        for tile in platform.compute.attention
        if (tile.block_m, tile.block_n, tile.head_dim) == (128, 128, 128)
    )
    assert tile.split is not None
    return tile.split


def test_ctas_that_share_a_tile_halve_their_bursts_and_their_q_loops() -> None:
    """64 KV tiles and 256 output tiles: 32 each, and of 66 teams the busiest makes four."""
    workload, platform = load_workload("fa-a2a/paper"), load_platform("h200-host")
    whole, split = (
        audit(
            workload,
            platform,
            attention_config(output_staging="dedicated-x1", tile_order="own-last", kv_splits=parts),
        )
        for parts in (1, 2)
    )
    assert isinstance(whole.detail, AttentionEstimate)
    assert isinstance(split.detail, AttentionEstimate)
    assert (whole.detail.rounds, split.detail.rounds) == (2, 4)
    assert (whole.burst.producers, split.burst.producers) == (132, 132)
    assert split.burst.burst_bytes.value == whole.burst.burst_bytes.value / 2
    times, known = split.detail.times, split_tile(platform)
    assert times.kv_tile_ns.value == known.kv_tile_ns
    assert split.gap_ns.value == times.fixed_ns.value + 32 * known.kv_tile_ns + known.exchange_ns
    # V/R of paced stores: half the burst, and half the KV tiles of each token, besides an exchange.
    (tokens, gap_ns), (split_tokens, split_gap_ns) = (
        (one.detail.converged_tokens.value, one.burst.recovery_gap_ns.value) for one in (whole, split)
    )
    assert tokens == pytest.approx(128 * gap_ns / whole.detail.times.kv_tile_ns.value)
    assert split_gap_ns == pytest.approx(gap_ns / 2, rel=0.02)
    assert split_tokens == pytest.approx(256 * (split_gap_ns - known.exchange_ns) / known.kv_tile_ns)
    assert split.detail.arrival.residual_ns.value < 0.7 * whole.detail.arrival.residual_ns.value


@pytest.mark.parametrize("kv_splits", [1, 2])
@pytest.mark.parametrize("tokens", [1024, 2299, 5000])
def test_a_sequence_as_long_as_advised_is_long_enough(tokens: int, kv_splits: int) -> None:
    """Its bursts are of more SMs than those of the short one."""
    platform = load_platform("h200-host")
    config = attention_config(output_staging="dedicated-x1", tile_order="own-last", kv_splits=kv_splits)
    changes = ("remote_fraction=0.875", "heads=24")
    found = audit(load_workload("fa-a2a/paper", [*changes, f"tokens={tokens}"]), platform, config)
    assert not found.rate_ok
    (advised,) = (action.limit for action in found.actions if action.kind == "longer_sequence")
    assert advised is not None
    longer = load_workload("fa-a2a/paper", [*changes, f"tokens={advised.value:.0f}"])
    assert audit(longer, platform, config).rate_ok


def test_tokens_that_one_rank_owns_alone_leave_nothing_to_audit() -> None:
    with pytest.raises(UsageError, match="stores nothing to another GPU"):
        audit(
            load_workload("fa-a2a/paper", ["tokens=1", "remote_fraction=0.875"]), load_platform("h200-host")
        )


def test_fewer_tiles_than_teams_leave_ctas_without_a_burst() -> None:
    workload = load_workload("fa-a2a/paper", ["tokens=1024"])
    config = attention_config(output_staging="dedicated-x1", kv_splits=2)
    assert audit(workload, load_platform("h200-host"), config).burst.producers == 64


def test_all_tokens_on_one_expert_fill_its_tiles() -> None:
    shares = ",".join(["1.0"] + ["0.0"] * 255)
    keys = ["top_k=1", "routing.kind=histogram", f"routing.histogram=[{shares}]"]
    found = audit(load_workload(FLASH, keys), paper_platform())
    assert isinstance(found.config, MegaMoeConfig)
    assert found.burst.burst_bytes.value == found.config.block_m * found.config.block_n * 2 * 7 / 8


def test_output_in_the_buffer_of_q_covers_nothing() -> None:
    platform = paper_platform()
    slow = platform.model_copy(update={"drain": platform.drain.model_copy(update={"bytes_per_s": 50e9})})
    workload = load_workload("fa-a2a/paper")
    config = default_config(workload, platform)
    assert isinstance(config, AttentionConfig)
    stalls = [
        audit(workload, slow, config.model_copy(update={"output_staging": staging})).predicted["piggyback"]
        for staging in ("alias-q", "alias-v")
    ]
    assert stalls[0].stall_ns.value - stalls[1].stall_ns.value == pytest.approx(790 / 2)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"capacity": ()}, "no outstanding capacity Q"),
        ({"compute": None}, "no compute section"),
        ({"issue": [{**issue_point(148, 32768, 760), "flavour": "tma"}]}, "no outstanding capacity Q"),
    ],
)
def test_a_platform_that_lacks_a_figure_is_refused(sections: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        audit(load_workload("fa-a2a/paper"), paper_platform(**sections))


@pytest.mark.parametrize(
    ("workload", "keys"), [("fa-a2a/flux.1-1024px", ["degree=1"]), (FLASH, ["remote_fraction=0.0"])]
)
def test_a_workload_that_stays_on_its_gpu_is_refused(workload: str, keys: list[str]) -> None:
    with pytest.raises(UsageError, match="stores nothing to another GPU"):
        audit(load_workload(workload, keys), paper_platform())


def test_a_config_of_another_kernel_is_refused() -> None:
    config = default_config(load_workload(FLASH), paper_platform())
    with pytest.raises(UsageError, match="does not fit the workload"):
        audit(load_workload("fa-a2a/paper"), paper_platform(), config)


def test_a_config_that_cannot_run_is_refused() -> None:
    config = default_config(load_workload("fa-a2a/paper"), paper_platform())
    with pytest.raises(UsageError, match="shared memory"):
        audit(load_workload("fa-a2a/paper"), paper_platform(), config.model_copy(update={"kv_stages": 40}))
