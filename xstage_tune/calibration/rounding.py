"""Fitted numbers to the digits that carry meaning."""

from __future__ import annotations

from typing import Any

from xstage_tune.platforms.schema import PlatformProfile

#: The last bits of a fit depend on the machine's mathematics library; rounded this far, a recording gives the
#: same profile everywhere. Measurement errors are in the third or fourth digit.
SIGNIFICANT_DIGITS = 9


def rounded(profile: PlatformProfile) -> PlatformProfile:
    """The profile with every fraction rounded to ``SIGNIFICANT_DIGITS``."""
    return PlatformProfile.model_validate(_rounded(profile.model_dump()))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_rounded(item) for item in value)
    return value
