"""A calibration from the first probe to the fitted platform."""

from __future__ import annotations

from collections.abc import Sequence

from xstage_tune.base.errors import FindingError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.progress import Progress, phase
from xstage_tune.calibration.fit import fit, fit_basis, fit_figures
from xstage_tune.calibration.plan import Planner, probed_rate
from xstage_tune.calibration.quality import VERIFICATION_HINT, verification_failure
from xstage_tune.calibration.reduce import RunFigures, UnusableRun, periodic, reduce_run
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.launches.bursts import BurstPoint, CopyProbe, CopyRate
from xstage_tune.launches.device import Device
from xstage_tune.launches.requirements import require_path

__all__ = ["CalibrationRequest", "calibrate", "fit"]


def calibrate(device: Device, request: CalibrationRequest, progress: Progress) -> CalibrationResult:
    """Measure and fit one path of ``device``.

    Args:
        progress: told how many launches there are, those done included, as stages are planned.

    Raises:
        DeviceError: the device lacks the path, or cannot run a point.
        FindingError: data did not arrive at the owner, or the runs allow no R or no T0 at all. Lesser
            trouble is in the result's findings.
    """
    description = device.describe()
    require_path(description, request.path)
    session = _Session(device, progress)
    planner = Planner(request, description.sm_count)
    copy_rate = session.copy_rate(request.path)
    session.measure(planner.probe())
    session.measure(planner.survey(probed_rate(periodic(session.usable()))))
    with phase("fitting"):
        basis = fit_basis(session.figures, request)
    session.measure(planner.focus(basis))
    with phase("fitting"):
        return fit_figures(session.figures, copy_rate, description, request)


class _Session:
    """The figures so far; spans are dropped once reduced."""

    def __init__(self, device: Device, progress: Progress) -> None:
        self._device = device
        self._progress = progress
        self._launches = 0
        self.figures: list[RunFigures] = []

    def copy_rate(self, path: StorePath) -> CopyRate:
        self._plan(1)
        (copied,) = self._device.run([CopyProbe(path)])
        rate: CopyRate = copied.figures
        return rate

    def measure(self, points: Sequence[BurstPoint]) -> None:
        self._plan(len(points))
        for run in self._device.run(points):
            verification = run.verification
            if verification.mismatched_bytes:
                raise FindingError(
                    verification_failure(
                        run.launch, verification.mismatched_bytes, verification.checked_bytes
                    ),
                    VERIFICATION_HINT,
                )
            self.figures.append(reduce_run(run))

    def _plan(self, more: int) -> None:
        self._launches += more
        self._progress.planned(self._launches)

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
