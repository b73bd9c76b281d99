"""Compute sections of known GPUs: found by name, each number with its source."""

from __future__ import annotations

import pytest

from xstage_tune.platforms.gpus import known_compute
from xstage_tune.platforms.loader import load_platform


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H200 NVL"])
def test_a_known_gpu_has_rates_and_limits_with_sources(name: str) -> None:
    compute = known_compute(name)
    assert compute is not None
    assert {rate.dtype for rate in compute.tensor} == {"bf16", "fp8"}
    assert all(part.source for part in (*compute.tensor, *compute.attention, compute))


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "H200", ""])
def test_an_unknown_gpu_has_none(name: str) -> None:
    assert known_compute(name) is None


@pytest.mark.parametrize("platform", ["h200-host", "h200-peer"])
def test_the_shipped_h200_profiles_carry_its_compute_section(platform: str) -> None:
    assert load_platform(platform).compute == known_compute("NVIDIA H200")
