"""Short ways to burst points and their figures."""

from __future__ import annotations

from tests.calibration.fluid import Fluid, FluidDevice
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.calibration.reduce import IsolatedFigures, PeriodicFigures, reduce_run
from xstage_tune.launches.bursts import BurstPoint

KIB = 1 << 10


def periodic_point(
    k: int,
    burst_bytes: int,
    gap_ns: int = 0,
    *,
    window_ns: int = 1_000_000,
    repeat: int = 0,
    flavour: StoreFlavour = "st.v4",
    path: StorePath = "host",
) -> BurstPoint:
    return BurstPoint("periodic", path, flavour, k, burst_bytes, gap_ns, window_ns, repeat=repeat)


def isolated_point(k: int, burst_bytes: int, *, bursts: int = 12) -> BurstPoint:
    gap_ns = int(2 * k * burst_bytes / 52.6) + 20_000
    return BurstPoint("isolated", "host", "st.v4", k, burst_bytes, gap_ns, bursts=bursts)


def periodic_figures(truth: Fluid, point: BurstPoint) -> PeriodicFigures:
    figures = reduce_run(FluidDevice(truth).burst(point))
    assert isinstance(figures, PeriodicFigures)
    return figures


def isolated_figures(truth: Fluid, point: BurstPoint) -> IsolatedFigures:
    figures = reduce_run(FluidDevice(truth).burst(point))
    assert isinstance(figures, IsolatedFigures)
    return figures
