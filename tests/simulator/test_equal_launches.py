"""Configs that are one launch to the simulator are simulated once, and have the times of a fresh one."""

from __future__ import annotations

import pytest

from tests.configs.cases import BLACKWELL
from tests.search.cases import drained
from xstage_tune.families.binding import default_config
from xstage_tune.families.kernel_launch import KernelRun
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.simulator import fused_kernels
from xstage_tune.simulator.fused_kernels import SimulatedKernels


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one with each run of the event simulation."""
    done: list[object] = []
    simulate = fused_kernels.simulate

    def counted(*arguments: object) -> object:
        done.append(arguments)
        return simulate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fused_kernels, "simulate", counted)
    return done


def test_twins_and_repeats_of_seeds_that_ran_are_not_simulated_again(runs: list[object]) -> None:
    config = default_config(drained(), BLACKWELL)
    assert isinstance(config, MegaMoeConfig)
    twin = config.model_copy(update={"pipeline_stages": config.pipeline_stages - 1})
    other = config.model_copy(update={"staging_depth": config.staging_depth - 1})
    kernels = SimulatedKernels(BLACKWELL)

    def times(of: MegaMoeConfig, repeats: int) -> KernelRun:
        return kernels.run_kernel(drained(), of, repeats)

    first = times(config, 2)
    assert times(twin, 2) == first
    assert len(runs) == 2
    longer = times(config, 3)
    assert (longer.latency_ns[:2], len(runs)) == (first.latency_ns, 3)
    assert times(config, 1).latency_ns == first.latency_ns[:1]
    assert times(other, 1) != times(config, 1)
    assert len(runs) == 4
    assert SimulatedKernels(BLACKWELL).run_kernel(drained(), config, 3) == longer
