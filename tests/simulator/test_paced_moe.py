"""The tool's own MoE kernel spreads a tile's stores over the next mainloop, and so does its simulation."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.devices.opener import open_simulator
from xstage_tune.families.binding import bind
from xstage_tune.families.kernel_launch import run_kernel
from xstage_tune.families.launch import FusedLaunch
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform

#: By less than that two schedules count as equal.
TIE = 0.03
WAVE, INTERLEAVED = Schedule(kind="wave", experts_per_wave=8), Schedule(kind="interleaved", lead_rows=10)


def config(schedule: Schedule) -> MegaMoeConfig:
    return SHIPPED["bf16"][0].model_copy(update={"schedule": schedule})


def launch(precision: str, schedule: Schedule = INTERLEAVED) -> FusedLaunch:
    layer = load_workload(
        "megamoe/deepseek-v4-flash",
        [f"precision={precision}", "tokens_per_rank=1024", "remote_fraction=0.25"],
    )
    return bind(layer, load_platform("h200-host")).launch(config(schedule))


@pytest.mark.parametrize("precision", SHIPPED)
def test_a_linear2_tile_is_stored_until_its_successor_is_computed(precision: str) -> None:
    made = launch(precision)
    streams = made.streams
    assert made.linear2 is not None
    last = np.zeros(streams.tiles, np.bool_)
    last[streams.first[1:] - 1] = True
    held = made.linear2 & ~last
    until = np.append(streams.mainloop_ns[1:], 0.0)
    np.testing.assert_allclose((streams.paced_ns + streams.staging_ns)[held], until[held])
    assert not streams.paced_ns[~held].any()


def test_a_kernel_of_the_users_own_stores_at_once() -> None:
    assert not launch("w4a8").streams.paced_ns.any()


@pytest.mark.parametrize("fraction", [0.0625, 0.125, 0.25])
def test_the_design_test_says_where_interleaving_wins(fraction: float) -> None:
    """Spread stores leave nothing behind, so that the rate bound alone decides."""
    platform = load_platform("h200-host")
    layer = load_workload(
        "megamoe/deepseek-v4-flash",
        ["precision=bf16", "tokens_per_rank=8192", f"remote_fraction={fraction}"],
    )
    device = open_simulator(platform)
    wave, interleaved = (
        run_kernel(device, layer, config(schedule), "host").median_ns("latency")
        for schedule in (WAVE, INTERLEAVED)
    )
    predicted = bind(layer, platform).estimate(config(INTERLEAVED)).predicted
    assert predicted["interleaved"].rate_ok
    if predicted["wave"].rate_ok:
        assert wave / interleaved == pytest.approx(1, abs=TIE)
    else:
        assert wave / interleaved > 1 + TIE
