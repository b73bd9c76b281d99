"""Fitted numbers keep their meaning and lose the noise of the machine's arithmetic."""

from __future__ import annotations

import json

import numpy as np

from tests.calibration.conftest import Calibrated
from xstage_tune.calibration.rounding import SIGNIFICANT_DIGITS, rounded


def numbers(value: object) -> list[float]:
    """All fractions in nested JSON values."""
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return []


def test_a_profile_is_rounded_and_rounding_it_again_changes_nothing(calibrated: Calibrated) -> None:
    platform = calibrated.result.platform
    assert rounded(platform) == platform
    for number in numbers(json.loads(platform.model_dump_json())):
        assert number == float(f"{number:.{SIGNIFICANT_DIGITS}g}")


def test_differences_in_the_last_bits_vanish(calibrated: Calibrated) -> None:
    platform = calibrated.result.platform
    rate = platform.drain.bytes_per_s
    nudged = platform.drain.model_copy(update={"bytes_per_s": float(np.nextafter(rate, np.inf))})
    assert rounded(platform.model_copy(update={"drain": nudged})) == platform
