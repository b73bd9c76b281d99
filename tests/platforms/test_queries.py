"""T0 and Q between and beyond calibrated points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.base.errors import UsageError
from xstage_tune.base.json_output import json_sha256
from xstage_tune.estimates.figures import Basis
from xstage_tune.estimates.schedule import visibility_latency
from xstage_tune.platforms.latencies import Latency, latencies_of
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.queries import capacity_bytes, capacity_law_bytes, issue_ns
from xstage_tune.platforms.schema import CapacityLaw, CapacityPoint, IssuePoint, PlatformProfile

PAPER = load_platform("paper-nvlink5")


def with_issue(*points: tuple[int, int, float]) -> PlatformProfile:
    """The paper's platform with issue points (producers, burst bytes, ns) instead of its own."""
    issue = tuple(
        IssuePoint(flavour="st.v4", producers=k, burst_bytes=b, ns=ns, source="test") for k, b, ns in points
    )
    return PAPER.model_copy(update={"issue": issue})


def with_capacity(*points: tuple[int, float, bool]) -> PlatformProfile:
    """The paper's platform with capacity points (producers, bytes, knee reached)."""
    capacity = tuple(
        CapacityPoint(flavour="st.v4", producers=k, bytes=q, knee_reached=reached, source="test")
        for k, q, reached in points
    )
    return PAPER.model_copy(update={"capacity": capacity})


MEASURED = with_issue((8, 2048, 80), (8, 32768, 530), (132, 2048, 100), (132, 8192, 180), (132, 32768, 560))


class TestIssue:
    def test_returns_calibrated_points(self) -> None:
        for point in MEASURED.issue:
            assert issue_ns(MEASURED, "st.v4", point.producers, point.burst_bytes) == pytest.approx(point.ns)

    def test_is_linear_between_bursts_and_between_producers(self) -> None:
        assert issue_ns(MEASURED, "st.v4", 132, 5120) == pytest.approx(140)
        assert issue_ns(MEASURED, "st.v4", 70, 2048) == pytest.approx(90)  # halfway from 8 to 132

    def test_producers_outside_the_calibrated_counts_take_the_nearest(self) -> None:
        assert issue_ns(MEASURED, "st.v4", 1, 2048) == pytest.approx(80)
        assert issue_ns(MEASURED, "st.v4", 1000, 2048) == pytest.approx(100)

    def test_larger_bursts_continue_the_last_line(self) -> None:
        assert issue_ns(MEASURED, "st.v4", 132, 65536) == pytest.approx(560 + 380 / 24576 * 32768)

    def test_smaller_bursts_continue_the_first_line_but_never_under_proportion(self) -> None:
        assert issue_ns(MEASURED, "st.v4", 132, 1024) == pytest.approx(100 - 80 / 6144 * 1024)
        steep = with_issue((8, 1000, 10), (8, 2000, 100))
        assert issue_ns(steep, "st.v4", 8, 500) == pytest.approx(5)

    def test_one_published_point_is_scaled_by_bytes(self) -> None:
        assert issue_ns(PAPER, "st.v4", 148, 48 * 1024) == pytest.approx(1140)
        assert issue_ns(PAPER, "st.v4", 74, 8 * 1024) == pytest.approx(190)

    def test_has_the_shape_of_the_bursts(self) -> None:
        assert issue_ns(MEASURED, "st.v4", 132, np.full((2, 3), 4096)).shape == (2, 3)
        assert np.ndim(issue_ns(MEASURED, "st.v4", 132, 4096)) == 0

    def test_noise_in_the_points_does_not_make_larger_bursts_faster(self) -> None:
        noisy = with_issue((8, 1000, 10), (8, 2000, 30), (8, 3000, 29), (8, 4000, 40))
        assert issue_ns(noisy, "st.v4", 8, 3000) == 30

    @given(
        st.lists(st.tuples(st.sampled_from([8, 32, 132]), st.integers(1, 99), st.floats(1, 1e4)), min_size=1),
        st.floats(1, 200),
    )
    @settings(deadline=None, max_examples=50)
    def test_is_positive_and_never_falls_as_bursts_grow(
        self, points: list[tuple[int, int, float]], producers: float
    ) -> None:
        distinct = {(k, b): (k, b, ns) for k, b, ns in points}
        curve = issue_ns(with_issue(*distinct.values()), "st.v4", producers, np.linspace(0.5, 200, 300))
        assert (curve > 0).all()
        assert (np.diff(curve) >= -1e-9 * curve[:-1]).all()

    def test_an_uncalibrated_flavour_names_the_platform_and_what_it_has(self) -> None:
        with pytest.raises(
            UsageError, match="'paper-nvlink5' has no issue times for store flavour 'tma'"
        ) as e:
            issue_ns(PAPER, "tma", 148, 4096)
        assert "st.v4" in e.value.hint

    @pytest.mark.parametrize("bad", [0, -1, float("nan")])
    def test_refuses_a_burst_of_no_bytes(self, bad: float) -> None:
        with pytest.raises(ValueError, match="burst_bytes"):
            issue_ns(PAPER, "st.v4", 148, bad)


class TestCapacity:
    POINTS = with_capacity((8, 1e6, False), (32, 2e6, True), (132, 4e6, True))

    def test_is_linear_between_knees_proportional_below_and_constant_above(self) -> None:
        q = capacity_bytes(self.POINTS, "st.v4", [16, 32, 82, 132, 148])
        assert q == pytest.approx([1e6, 2e6, 3e6, 4e6, 4e6])

    def test_a_law_comes_before_the_points(self) -> None:
        law = CapacityLaw(flavour="st.v4", law="linear", scale_bytes=100.0, rms_relative_error=0.0)
        assert capacity_bytes(self.POINTS.model_copy(update={"capacity_law": (law,)}), "st.v4", 3) == 300

    def test_knees_that_were_not_reached_are_no_capacity(self) -> None:
        with pytest.raises(UsageError, match="platform 'paper-nvlink5' has no outstanding capacity Q"):
            capacity_bytes(with_capacity((8, 1e6, False)), "st.v4", 8)

    def test_a_platform_without_q_says_how_to_get_it(self) -> None:
        with pytest.raises(UsageError, match="has no outstanding capacity Q") as caught:
            capacity_bytes(with_capacity(), "st.v4", 8)
        assert "xstage-tune calibrate --path peer --store-flavour st.v4" in caught.value.hint

    @pytest.mark.parametrize(
        ("law", "parameters", "expected"),
        [
            ("constant", {}, [1000.0, 1000.0]),
            ("linear", {}, [4000.0, 8000.0]),
            ("power", {"exponent": 0.5}, [2000.0, 2828.427]),
            ("saturating", {"producers_scale": 4.0}, [632.121, 864.665]),
        ],
    )
    def test_laws_at_4_and_8_producers(
        self, law: str, parameters: dict[str, float], expected: list[float]
    ) -> None:
        fitted = CapacityLaw.model_validate(
            {"flavour": "st.v4", "law": law, "scale_bytes": 1000.0, "rms_relative_error": 0.0, **parameters}
        )
        assert capacity_law_bytes(fitted, [4, 8]) == pytest.approx(expected, abs=1e-3)


def test_a_profile_without_latencies_has_those_of_an_h200_marked_as_assumed() -> None:
    """And is the same to studies and recordings as one that states them."""
    stated = load_platform("h200-peer")
    former = stated.model_copy(update={"latencies": None})
    found = latencies_of(former)
    assert {getattr(found, name).origin for name in type(found).model_fields} == {"assumed"}
    assert latencies_of(stated).counter.origin == "measured"
    assert latencies_of(stated).same_times(found)
    assert json_sha256(former.figures()) == json_sha256(stated.figures())
    slower = found.model_copy(update={"signal": found.signal.model_copy(update={"ns": 900.0})})
    assert former.model_copy(update={"latencies": slower}).figures() != former.figures()


def test_latencies_of_the_profile_are_those_of_a_launch() -> None:
    platform = load_platform("h200-peer")
    found = latencies_of(platform)
    slower = found.model_copy(update={"visibility": Latency(ns=5000.0, origin="measured", source="a test")})
    figure = visibility_latency(platform.model_copy(update={"latencies": slower}))
    assert (figure.value, figure.basis, figure.origin) == (5000.0, Basis.MEASURED, "a test")
    assert visibility_latency(platform).basis is Basis.ASSUMED
