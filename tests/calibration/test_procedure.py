"""A whole calibration against an exact fluid model: what went in must come out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.conftest import PORTS, TRUTH, Calibrated
from tests.calibration.fluid import FluidDevice, Watched
from xstage_tune.base.errors import DeviceError, FindingError
from xstage_tune.base.progress import NoProgress
from xstage_tune.calibration.fit import fit
from xstage_tune.calibration.procedure import calibrate
from xstage_tune.calibration.request import CalibrationRequest


def test_drain_rate_is_recovered(calibrated: Calibrated) -> None:
    drain = calibrated.result.platform.drain
    truth = calibrated.truth.drain_bytes_per_s
    assert drain.bytes_per_s == pytest.approx(truth, rel=3e-3)
    assert drain.ci95 is not None
    assert drain.ci95[0] < drain.bytes_per_s < drain.ci95[1]
    assert drain.copy_engine_bytes_per_s == pytest.approx(55.1e9)


def test_every_drain_dominated_point_has_the_same_rate(calibrated: Calibrated) -> None:
    for points in calibrated.result.drain_points:
        rates = points.bytes_per_s[points.drain_dominated]
        assert len(rates) > 1
        assert np.abs(rates / calibrated.truth.drain_bytes_per_s - 1).max() < 0.01


def test_issue_times_are_recovered_per_flavour(calibrated: Calibrated) -> None:
    factor = {"st.v4": 1.0, "tma": calibrated.truth.tma_issue_factor}
    for point in calibrated.result.platform.issue:
        truth = calibrated.truth.free_issue_ns(point.burst_bytes) * factor[point.flavour]
        assert point.ns == pytest.approx(truth, rel=0.01)
    assert {point.flavour for point in calibrated.result.platform.issue} == {"st.v4", "tma"}


def test_capacities_are_recovered(calibrated: Calibrated) -> None:
    for point in calibrated.result.platform.capacity:
        assert point.knee_reached
        assert point.bytes == pytest.approx(calibrated.truth.capacity_bytes(point.producers), rel=0.03)


def test_law_of_the_capacity_goes_through_the_knees(calibrated: Calibrated) -> None:
    laws = {law.flavour: law for law in calibrated.result.platform.capacity_law}
    assert set(laws) == {"st.v4", "tma"}
    assert all(law.rms_relative_error < 0.03 for law in laws.values())


def test_ports_and_branches_of_the_arbiter_are_found_exactly(calibrated: Calibrated) -> None:
    arbitration = calibrated.result.platform.arbitration
    assert arbitration is not None
    assert tuple(group.sm_ids for group in arbitration.groups) == PORTS
    assert [group.share for group in arbitration.groups] == pytest.approx([0.25] * 4, abs=0.005)
    branches = [group.branch for group in arbitration.groups]
    assert branches[0] == branches[1] != branches[2] == branches[3]
    assert arbitration.repeat_correlation > 0.95


def test_shares_on_placements_that_the_law_never_saw_are_predicted(calibrated: Calibrated) -> None:
    arbitration = calibrated.result.platform.arbitration
    assert arbitration is not None
    assert [prediction.producers for prediction in arbitration.predictions] == [16, 32]
    assert all(prediction.max_relative_error < 0.01 for prediction in arbitration.predictions)


def test_held_out_points_are_predicted(calibrated: Calibrated) -> None:
    errors = calibrated.result.platform.validation
    assert errors is not None
    assert errors.points > 20
    assert errors.period_median_pct < 0.5
    assert errors.period_p95_pct < 1.0
    # T_iss is a small difference of large times near G*, and the slowest of K jitters above the mean.
    assert errors.issue_median_pct < 1.0
    assert errors.isolated_median_pct < 4.0


def test_gap_curves_carry_the_local_control_of_the_same_size(calibrated: Calibrated) -> None:
    with_local = [curve for curve in calibrated.result.gap_curves if curve.local_gap_ns.size]
    assert len(with_local) == 1
    assert calibrated.result.platform.local_control is not None
    assert calibrated.result.platform.local_control.gap_spread < 0.05


def test_profile_says_what_it_is_and_where_from(calibrated: Calibrated) -> None:
    platform = calibrated.result.platform
    assert platform.name == "fluid-1-host"
    assert platform.provenance.seed == calibrated.request.seed
    assert platform.provenance.created_at == "2026-01-01T00:00:00+00:00"
    assert platform.gpu.sm_clock_mhz == pytest.approx(1980, rel=1e-3)


def test_the_plan_grows_to_what_ran(calibrated: Calibrated) -> None:
    watched = calibrated.watched
    assert watched.totals == sorted(watched.totals)
    assert watched.totals[-1] == len(watched.runs) + len(watched.copy_rates)
    assert len(watched.copy_rates) == 1


def test_same_seed_gives_the_same_result_bit_for_bit(calibrated: Calibrated) -> None:
    again = Watched(FluidDevice(calibrated.truth))
    result = calibrate(again, calibrated.request, again)
    assert [run.launch for run in again.runs] == [run.launch for run in calibrated.watched.runs]
    assert result.platform == calibrated.result.platform
    assert result.findings == calibrated.result.findings


def test_stored_runs_refit_to_the_same_platform(calibrated: Calibrated) -> None:
    device = FluidDevice(calibrated.truth)
    result = fit(calibrated.watched.runs, device.copy_rate("host"), device.describe(), calibrated.request)
    assert result.platform == calibrated.result.platform


def test_mismatch_stops_the_calibration_at_once_naming_the_path(calibrated: Calibrated) -> None:
    truth = replace(calibrated.truth, mismatched=lambda point: 64 if point.mode == "isolated" else 0)
    watched = Watched(FluidDevice(truth))
    with pytest.raises(FindingError, match="path 'host': 64 of 1048576 bytes") as error:
        calibrate(watched, calibrated.request, watched)
    assert error.value.hint
    assert watched.runs[-1].verification.mismatched_bytes == 64  # kept before it was judged
    assert all(run.verification.mismatched_bytes == 0 for run in watched.runs[:-1])


def test_a_path_that_the_device_lacks_is_an_error() -> None:
    request = CalibrationRequest(path="peer", budget="quick")
    with pytest.raises(DeviceError, match="has no path 'peer'"):
        calibrate(FluidDevice(TRUTH), request, NoProgress())


def test_a_path_that_never_pushes_back_has_no_drain_rate() -> None:
    # A drain faster than all producers together: nothing to calibrate.
    with pytest.raises(FindingError, match="never push back"):
        calibrate(
            FluidDevice(replace(TRUTH, drain_bytes_per_s=1e14)),
            CalibrationRequest(path="host", budget="quick"),
            NoProgress(),
        )


def test_unusable_probes_are_reported_with_their_reason() -> None:
    truth = replace(TRUTH, span_capacity=1)
    with pytest.raises(FindingError, match=r"no usable probe of the path.*spans were dropped"):
        calibrate(FluidDevice(truth), CalibrationRequest(path="host", budget="quick"), NoProgress())
