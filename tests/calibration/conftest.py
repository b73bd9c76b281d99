"""One fluid calibration, shared: most tests look at different sides of its result."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.calibration.fluid import Fluid, FluidDevice, Watched
from xstage_tune.calibration.procedure import calibrate
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult

#: A quarter of an H200: ports of unequal size, Q growing less than linearly.
PORTS = (tuple(range(6)), tuple(range(6, 15)), tuple(range(15, 24)), tuple(range(24, 33)))
TRUTH = Fluid(ports=PORTS, branch_of_port=(0, 0, 1, 1), capacity_bytes=lambda k: 4.0e6 * (k / 33) ** 0.5)
REQUEST = CalibrationRequest(path="host", flavours=("st.v4", "tma"), budget="quick", seed=3)


@dataclass(frozen=True)
class Calibrated:
    """A calibration with everything that ran."""

    truth: Fluid
    request: CalibrationRequest
    watched: Watched
    result: CalibrationResult


@pytest.fixture(scope="package")
def calibrated() -> Calibrated:
    watched = Watched(FluidDevice(TRUTH))
    return Calibrated(TRUTH, REQUEST, watched, calibrate(watched, REQUEST, watched))
