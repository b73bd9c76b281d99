"""Fused kernels on a GPU, in a process of their own: what they measure, and what their faults are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from tests.configs.cases import attention, attention_config
from xstage_tune.devices.isolated import IsolatedDevice
from xstage_tune.devices.opener import open_fused_kernels
from xstage_tune.families.kernel_launch import KernelLaunch, KernelRun
from xstage_tune.search.evaluation import Evaluation, Failure, evaluate

pytestmark = pytest.mark.gpu

WORKLOAD = attention(tokens=4096, heads=24)
WIDE, NARROW, BROKEN = (attention_config(block_n=block_n) for block_n in (128, 80, 112))


@pytest.fixture(scope="module")
def device() -> Iterator[IsolatedDevice]:
    with closing(IsolatedDevice(partial(open_fused_kernels, "attention"))) as opened:
        yield opened


def run(device: IsolatedDevice, launch: KernelLaunch) -> KernelRun:
    found = evaluate(device, launch)
    assert isinstance(found, Evaluation), found
    return found.run


@pytest.mark.gpu_alone
def test_two_kernels_in_turn(device: IsolatedDevice) -> None:
    alone = run(device, KernelLaunch(WORKLOAD, WIDE, "host", inputs=1))
    assert 2e4 < alone.median_ns("latency") < 1e6
    assert all(cold_ns > 0.5 * alone.median_ns("latency") for cold_ns in alone.cold_ns)
    both = run(device, KernelLaunch(WORKLOAD, NARROW, "host", 20, against=WIDE, exposed=True, inputs=2))
    assert both.ratio is not None
    assert 0.8 < both.ratio.low < both.ratio.high < 3
    assert both.exposed_ns is not None
    assert -0.1 * both.median_ns("latency") < both.exposed_ns < both.median_ns("latency")
    assert both.states
    assert both.busy_ns > 1e8


@pytest.mark.gpu_alone
def test_a_kernel_against_itself_is_a_tie(device: IsolatedDevice) -> None:
    same = run(device, KernelLaunch(WORKLOAD, WIDE, "host", 20, against=WIDE, inputs=3))
    assert same.ratio is not None
    assert same.ratio.value == pytest.approx(1, abs=0.02)


def test_spans_give_the_mainloop_and_the_waits(device: IsolatedDevice) -> None:
    found = run(device, KernelLaunch(WORKLOAD, NARROW, "host", inputs=4, spans=True))
    assert found.mainloop_ns is not None
    assert 1e3 < found.mainloop_ns < found.median_ns("latency")
    assert len(found.stall_ns) == 1


@pytest.mark.parametrize(
    ("fault", "comes_under"),
    [("illegal access", "fault"), ("trap", "fault"), ("hang", "timeout"), ("nothing", "incorrect")],
)
def test_a_broken_kernel_is_an_outcome_and_the_next_one_runs(fault: str, comes_under: str) -> None:
    from tests.devices.gpu_faults import open_broken

    with closing(IsolatedDevice(partial(open_broken, fault))) as device:
        run(device, KernelLaunch(WORKLOAD, WIDE, "host", inputs=1))
        failure = evaluate(device, KernelLaunch(WORKLOAD, BROKEN, "host", against=WIDE, inputs=2))
        assert isinstance(failure, Failure)
        assert failure.fault == comes_under
        run(device, KernelLaunch(WORKLOAD, NARROW, "host", against=WIDE, inputs=3))
