"""Numbers with units: readable, parsable back, and never ``nan``."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.base.number_format import (
    ABSENT,
    BYTE_UNITS,
    DURATION_UNITS,
    byte_count,
    duration,
    factor,
    id_ranges,
    percent,
    rate,
    signed_percent,
)

_SIZES = {unit.symbol: unit.size for unit in (*BYTE_UNITS, *DURATION_UNITS)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rate(52.613e9, (52.581e9, 52.642e9)), "52.61 GB/s [52.58, 52.64]"),
        (rate(717e9), "717.0 GB/s"),
        (rate(8.5e6), "8.500 MB/s"),
        (duration(80.123), "80.12 ns"),
        (duration(530.2), "530.2 ns"),
        (duration(19_420.0, (19_400.0, 19_450.0)), "19.42 us [19.40, 19.45]"),
        (duration(1.5e6), "1.500 ms"),
        (duration(3e9), "3.000 s"),
        (duration(0.0), "0 ns"),
        (byte_count(32 * 1024), "32 KiB"),
        (byte_count(512), "512 B"),
        (byte_count(4.25 * 2**20), "4.25 MiB"),
        (byte_count(0), "0 B"),
        (percent(1.366), "1.37%"),
        (factor(0.9167), "0.92x"),
    ],
)
def test_values_read_as_an_engineer_writes_them(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize("error_pct", [float("inf"), float("-inf"), float("nan")])
def test_an_error_that_is_no_number_is_absent(error_pct: float) -> None:
    assert signed_percent(error_pct) == ABSENT


@pytest.mark.parametrize(
    ("error_pct", "shown"), [(1.26, "+1.3%"), (-12.0, "-12.0%"), (-0.04, "0.0%"), (0.0, "0.0%")]
)
def test_an_error_that_rounds_to_nothing_has_no_sign(error_pct: float, shown: str) -> None:
    assert signed_percent(error_pct) == shown


def test_a_value_that_rounds_to_a_thousand_moves_to_the_next_unit() -> None:
    assert duration(999.96) == "1.000 us"
    assert duration(999.9) == "999.9 ns"


@pytest.mark.parametrize("missing", [None, math.nan, math.inf, -math.inf])
def test_absent_values_are_a_dash(missing: float | None) -> None:
    for formatter in (duration, rate, byte_count, percent, factor):
        assert formatter(missing) == ABSENT


def test_an_interval_that_is_not_finite_is_left_out() -> None:
    assert rate(52.61e9, (math.nan, 53e9)) == "52.61 GB/s"


def test_an_interval_of_no_width_keeps_the_digits_of_the_value() -> None:
    assert duration(530.2, (530.2, 530.2)) == "530.2 ns [530.2, 530.2]"


@settings(deadline=None, max_examples=200)
@given(st.floats(1.0, 1e12), st.sampled_from([duration, byte_count]))
def test_a_printed_value_parses_back_to_within_its_last_digit(value: float, formatter) -> None:  # type: ignore[no-untyped-def]
    number, symbol = formatter(value).split(" ")
    # Four significant digits are kept; a value just below a power of ten loses half a unit of the fourth.
    assert float(number) * _SIZES[symbol] == pytest.approx(value, rel=6e-4)


@settings(deadline=None, max_examples=200)
@given(st.floats(1.0, 1e10), st.floats(1e-4, 0.5))
def test_an_interval_prints_around_its_value_with_distinct_bounds(value: float, half_width: float) -> None:
    text = duration(value, (value * (1 - half_width), value * (1 + half_width)))
    match = re.fullmatch(r"([\d.]+) \w+ \[([\d.]+), ([\d.]+)\]", text)
    assert match
    middle, low, high = (float(number) for number in match.groups())
    assert low <= middle <= high
    assert low < high


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], ABSENT),
        ([7], "7"),
        ([0, 1], "0-1"),
        ([12, 5, 4, 3, 2, 1, 0], "0-5,12"),
        ([3, 3, 4], "3-4"),
        ([0, 2, 4], "0,2,4"),
    ],
)
def test_ids_compress_to_ranges(ids: list[int], expected: str) -> None:
    assert id_ranges(ids) == expected


@settings(deadline=None)
@given(st.sets(st.integers(0, 200), min_size=1))
def test_ranges_expand_back_to_the_same_ids(ids: set[int]) -> None:
    expanded: list[int] = []
    for part in id_ranges(ids).split(","):
        first, _, last = part.partition("-")
        expanded += range(int(first), int(last or first) + 1)
    assert expanded == sorted(ids)


def test_a_percentage_that_rounds_to_nothing_has_no_sign() -> None:
    assert (percent(-0.04, 1), percent(-0.0), percent(-0.06, 1)) == ("0.0%", "0.00%", "-0.1%")
