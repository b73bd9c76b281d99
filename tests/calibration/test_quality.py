"""Each refusal and warning fires, with its numbers, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.conftest import Calibrated
from tests.calibration.fluid import FluidDevice, with_dropped
from xstage_tune.calibration.fit import fit, fit_figures
from xstage_tune.calibration.reduce import IsolatedFigures, PeriodicFigures, RunFigures, reduce_run
from xstage_tune.calibration.result import CalibrationResult, Finding
from xstage_tune.launches.bursts import CopyRate
from xstage_tune.launches.device import DeviceDescription, Verification

COPY = CopyRate("host", 1 << 28, (55.1e9, 55.0e9))


@pytest.fixture(scope="module")
def figures(calibrated: Calibrated) -> list[RunFigures]:
    return [reduce_run(run) for run in calibrated.watched.runs]


class Refit:
    """Fits the shared calibration again, with something spoilt."""

    def __init__(self, calibrated: Calibrated) -> None:
        self.request = calibrated.request
        self.description: DeviceDescription = FluidDevice(calibrated.truth).describe()

    def __call__(
        self, figures: Sequence[RunFigures], *, copy: CopyRate = COPY, link: float | None = None
    ) -> CalibrationResult:
        description = self.description
        if link is not None:
            description = replace(description, link={"host_bytes_per_s": link})
        return fit_figures(figures, copy, description, self.request)


@pytest.fixture(scope="module")
def refit(calibrated: Calibrated) -> Refit:
    return Refit(calibrated)


def found(result: CalibrationResult, code: str) -> Finding:
    (finding,) = [finding for finding in result.findings if finding.code == code]
    return finding


def test_a_sound_calibration_has_no_findings(figures: list[RunFigures], refit: Refit) -> None:
    result = refit(figures, link=63e9)
    assert result.findings == ()
    assert not result.refused


def test_throttling_is_refused_with_its_reason(figures: list[RunFigures], refit: Refit) -> None:
    hot = [replace(f, health=replace(f.health, throttle_reasons=("hw_thermal_slowdown",))) for f in figures]
    result = refit([*figures[:-1], hot[-1]])
    assert result.refused
    assert f"1 of {len(figures)} runs: hw_thermal_slowdown" in found(result, "throttled").message


def test_being_idle_between_launches_is_no_throttling(figures: list[RunFigures], refit: Refit) -> None:
    idle = [replace(f, health=replace(f.health, throttle_reasons=("gpu_idle",))) for f in figures]
    assert refit(idle).findings == ()


def test_a_clock_that_moves_under_the_plateaus_is_refused(figures: list[RunFigures], refit: Refit) -> None:
    moved = [
        replace(f, health=replace(f.health, sm_clock_mhz=1500.0)) if f.point.gap_ns > 0 and i % 2 else f
        for i, f in enumerate(figures)
    ]
    finding = found(refit(moved), "clock-unstable")
    assert finding.severity == "refuse"
    assert "1500 to 1980 MHz" in finding.message


def test_a_rate_above_the_copy_engine_is_refused(figures: list[RunFigures], refit: Refit) -> None:
    finding = found(refit(figures, copy=CopyRate("host", 1, (51e9, 50.9e9))), "drain-above-copy-engine")
    assert finding.severity == "refuse"
    assert "50.95 GB/s" in finding.message


def test_one_copy_that_was_timed_short_hides_no_rate_that_is_too_high(
    figures: list[RunFigures], refit: Refit
) -> None:
    """Else the profile would be written, and refused by its own figure when it is read."""
    finding = found(refit(figures, copy=CopyRate("host", 1, (51e9, 50.9e9, 60e9))), "drain-above-copy-engine")
    assert "51.00 GB/s" in finding.message


def test_copies_that_others_slowed_condemn_no_rate(figures: list[RunFigures], refit: Refit) -> None:
    result = refit(figures, copy=CopyRate("host", 1, (55e9, 55.1e9, 30e9)))
    assert not result.refused
    assert result.platform.drain.copy_engine_bytes_per_s == 55e9


def test_a_rate_within_the_copy_engines_error_is_accepted(figures: list[RunFigures], refit: Refit) -> None:
    assert not refit(figures, copy=CopyRate("host", 1, (52.5e9, 52.4e9))).refused


def test_a_rate_above_the_link_is_refused(figures: list[RunFigures], refit: Refit) -> None:
    finding = found(refit(figures, link=32e9), "drain-above-link")
    assert finding.severity == "refuse"
    assert "the link's rate of 32.00 GB/s" in finding.message


def scaled(figure: RunFigures, factor: float) -> RunFigures:
    """The run as if the path had been faster by ``factor``."""
    if not isinstance(figure, PeriodicFigures) or figure.point.gap_ns > 0:
        return figure
    return replace(
        figure,
        bytes_per_s=figure.bytes_per_s * factor,
        block_bytes_per_s=figure.block_bytes_per_s * factor,
        lane_bytes_per_s=figure.lane_bytes_per_s * factor,
    )


def test_a_wide_interval_is_refused(figures: list[RunFigures], refit: Refit) -> None:
    rng = np.random.default_rng(0)
    sizes = sorted({(f.point.producers, f.point.burst_bytes) for f in figures})
    factor = dict(zip(sizes, 1 + 0.1 * rng.standard_normal(len(sizes)), strict=True))
    noisy = [scaled(f, factor[f.point.producers, f.point.burst_bytes]) for f in figures]
    finding = found(refit(noisy), "drain-interval-wide")
    assert finding.severity == "refuse"
    assert "allowed 5%" in finding.message


def test_launches_that_traffic_slowed_are_told_and_do_not_move_the_rate(
    figures: list[RunFigures], refit: Refit, calibrated: Calibrated
) -> None:
    slowed = [scaled(f, 0.9) if f.point.repeat == 2 and f.point.burst_bytes == 8192 else f for f in figures]
    result = refit(slowed)
    finding = found(result, "path-disturbed")
    assert finding.severity == "warn"
    assert "at most by 10." in finding.message
    rate = calibrated.result.platform.drain.bytes_per_s
    assert result.platform.drain.bytes_per_s == pytest.approx(rate, rel=1e-3)


def test_a_path_disturbed_in_a_third_of_the_launches_is_refused(
    figures: list[RunFigures], refit: Refit
) -> None:
    drifted = [scaled(f, 0.9) if f.point.repeat == 2 else f for f in figures]
    finding = found(refit(drifted), "path-disturbed")
    assert finding.severity == "refuse"
    assert "allowed in 25% of them" in finding.message


def test_a_size_that_drains_at_another_rate_is_told(figures: list[RunFigures], refit: Refit) -> None:
    slower = [scaled(f, 0.97) if f.point.burst_bytes == 32 * 1024 else f for f in figures]
    finding = found(refit(slower), "drain-not-uniform")
    assert finding.severity == "warn"
    assert "B=32768" in finding.message


def without_stall(figures: Sequence[RunFigures], producers: set[int]) -> list[RunFigures]:
    return [
        replace(f, burst_ns=np.full_like(f.burst_ns, 50 + 15e-3 * f.point.burst_bytes))
        if isinstance(f, IsolatedFigures) and f.point.producers in producers and f.point.flavour == "st.v4"
        else f
        for f in figures
    ]


def test_no_knee_at_the_largest_k_is_refused(figures: list[RunFigures], refit: Refit) -> None:
    result = refit(without_stall(figures, {33}))
    finding = found(result, "knee-not-reached")
    assert finding.severity == "refuse"
    assert "K=33" in finding.message
    assert not next(
        c for c in result.platform.capacity if (c.flavour, c.producers) == ("st.v4", 33)
    ).knee_reached


def test_no_knee_at_a_smaller_k_is_told(figures: list[RunFigures], refit: Refit) -> None:
    result = refit(without_stall(figures, {16}))
    assert found(result, "knee-not-reached").severity == "warn"
    assert not result.refused


def test_stored_runs_with_a_mismatch_are_refused_naming_the_path(calibrated: Calibrated) -> None:
    runs = list(calibrated.watched.runs)
    runs[5] = replace(runs[5], verification=Verification(4096, 16))
    result = fit(runs, COPY, FluidDevice(calibrated.truth).describe(), calibrated.request)
    finding = found(result, "verification-failed")
    assert finding.severity == "refuse"
    assert "path 'host': 16 of 4096 bytes differ" in finding.message


def test_a_point_whose_every_window_is_unusable_is_refused(calibrated: Calibrated) -> None:
    runs = list(calibrated.watched.runs)
    lost = next(run.launch for run in runs if run.launch.repeat == 1 and not run.launch.idle_sms)
    runs = [with_dropped(run, 2) if replace(run.launch, repeat=1) == lost else run for run in runs]
    finding = found(
        fit(runs, COPY, FluidDevice(calibrated.truth).describe(), calibrated.request), "window-unusable"
    )
    assert finding.severity == "refuse"
    assert "spans were dropped" in finding.message


def test_an_unusable_window_of_a_point_that_has_others_is_told(calibrated: Calibrated) -> None:
    runs = list(calibrated.watched.runs)
    position = next(i for i, run in enumerate(runs) if run.launch.repeat == 1 and not run.launch.idle_sms)
    runs[position] = with_dropped(runs[position], 2)
    result = fit(runs, COPY, FluidDevice(calibrated.truth).describe(), calibrated.request)
    finding = found(result, "window-unusable")
    assert finding.severity == "warn"
    assert "1 runs have no usable window" in finding.message
    assert not result.refused


def test_a_local_control_that_waits_is_told(figures: list[RunFigures], refit: Refit) -> None:
    waiting = [
        replace(f, issue_ns=f.issue_ns * (1 + 1e-4 * f.point.gap_ns))
        if isinstance(f, PeriodicFigures) and f.point.path == "local"
        else f
        for f in figures
    ]
    assert found(refit(waiting), "local-control-sensitive").severity == "warn"


def test_held_out_errors_beyond_the_laws_reach_are_told(figures: list[RunFigures], refit: Refit) -> None:
    off = [
        replace(f, bytes_per_s=f.bytes_per_s * 0.9)
        if isinstance(f, PeriodicFigures) and f.point.gap_ns > 0 and f.point.path == "host"
        else f
        for f in figures
    ]
    finding = found(refit(off), "held-out-error")
    assert finding.severity == "warn"
    assert "10.0% in the median" in finding.message


def test_without_held_out_points_the_errors_are_unknown(figures: list[RunFigures], refit: Refit) -> None:
    fitted = [f for f in figures if not isinstance(f, IsolatedFigures)]
    result = refit(fitted)
    assert result.platform.validation is None
    assert found(result, "not-validated").severity == "warn"


def test_shares_measured_once_are_told(figures: list[RunFigures], refit: Refit) -> None:
    once = [
        f
        for f in figures
        if not (isinstance(f, PeriodicFigures) and f.point.gap_ns == 0)
        or f.point.producers < 33
        or (f.point.repeat, f.point.burst_bytes) == (1, 16 * 1024)
    ]
    assert found(refit(once), "arbitration-unrepeated").severity == "warn"
