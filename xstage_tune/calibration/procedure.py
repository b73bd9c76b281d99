"""A calibration from the first probe to the fitted platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xstage_tune.base.errors import FindingError
from xstage_tune.base.progress import phase
from xstage_tune.calibration.fit import fit, fit_basis, fit_figures
from xstage_tune.calibration.plan import Planner, probed_rate
from xstage_tune.calibration.quality import VERIFICATION_HINT, verification_failure
from xstage_tune.calibration.reduce import RunFigures, UnusableRun, periodic, reduce_run
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.launches.device import BurstDevice, BurstPoint, BurstRun, CopyRate
from xstage_tune.launches.requirements import require_path

__all__ = ["CalibrationObserver", "CalibrationRequest", "calibrate", "fit"]


class CalibrationObserver(Protocol):
    """Told of everything as it happens, so that runs can be kept and progress shown."""

    def copied(self, rate: CopyRate) -> None:
        """The copy engine's rate on the path was measured."""
        ...

    def planned(self, total_points: int) -> None:
        """How many points there are, those done included; called again as stages are planned."""
        ...

    def measured(self, run: BurstRun) -> None:
        """A run was made. Called for every run before anything is concluded from it."""
        ...


def calibrate(
    device: BurstDevice, request: CalibrationRequest, observer: CalibrationObserver
) -> CalibrationResult:
    """Measure and fit one path of ``device``.

    Raises:
        DeviceError: the device lacks the path, or cannot run a point.
        FindingError: data did not arrive at the owner, or the runs allow no R or no T0 at all. Lesser
            trouble is in the result's findings.
    """
    description = device.describe()
    require_path(description, request.path)
    session = _Session(device, observer)
    planner = Planner(request, description.sm_count)
    copy_rate = device.copy_rate(request.path)
    observer.copied(copy_rate)
    session.measure(planner.probe())
    session.measure(planner.survey(probed_rate(periodic(session.usable()))))
    with phase("fitting"):
        basis = fit_basis(session.figures, request)
    session.measure(planner.focus(basis))
    with phase("fitting"):
        return fit_figures(session.figures, copy_rate, description, request)


class _Session:
    """The figures so far; spans are dropped once reduced, the observer may keep them."""

    def __init__(self, device: BurstDevice, observer: CalibrationObserver) -> None:
        self._device = device
        self._observer = observer
        self.figures: list[RunFigures] = []

    def measure(self, points: Sequence[BurstPoint]) -> None:
        self._observer.planned(len(self.figures) + len(points))
        for run in self._device.run_bursts(points):
            self._observer.measured(run)
            verification = run.verification
            if verification.mismatched_bytes:
                raise FindingError(
                    verification_failure(
                        run.point, verification.mismatched_bytes, verification.checked_bytes
                    ),
                    VERIFICATION_HINT,
                )
            self.figures.append(reduce_run(run))

    def usable(self) -> list[RunFigures]:
        """The figures, if there are any to plan from.

        Raises:
            FindingError: no run was usable.
        """
        usable: list[RunFigures] = [figure for figure in self.figures if not isinstance(figure, UnusableRun)]
        if not usable:
            reasons = {figure.reason for figure in self.figures if isinstance(figure, UnusableRun)}
            raise FindingError(
                f"no usable probe of the path: {'; '.join(sorted(reasons))}",
                "stop other work on the GPU and its host, then calibrate again",
            )
        return usable
