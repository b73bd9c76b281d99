"""Whether a deployed config still is what its export says: it and the default, measured in turn here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from xstage_tune.base.errors import Fault, UsageError
from xstage_tune.export.bundle import read_export
from xstage_tune.export.default_terms import Defaults
from xstage_tune.export.identity import compare_gpu, compare_tool
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.launches.device import Device
from xstage_tune.launches.gpu_identity import identity_of
from xstage_tune.launches.in_turn import Interval
from xstage_tune.search.evaluation import Failure, evaluate

Verdict = Literal["same", "better", "worse", "not comparable"]

#: A gain over the default that differs by less is the same: what two days on one machine differ by.
TOLERANCE = 0.02
_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of an export.

    Args:
        workload: its name.
        config, default: labels.
        verdict: of the config's time over the default's here, beside that of the export. Where the export's
            is no measurement, beside the default alone.
        why: the verdict in words.
        differs: how machine or kernels are others than the export's.
        device: what ran.
        over_default: the config's time over the default's, here; None where one of them did not run.
        exported: the same of the export; None where that was not measured.
        latency_ns: of the config here.
        fault: what ruled the config out here, if anything.
    """

    workload: str
    config: str
    default: str
    verdict: Verdict
    why: str
    differs: tuple[str, ...]
    device: str
    over_default: Interval | None
    exported: float | None
    latency_ns: float | None
    fault: Fault | None = None

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON."""
        return asdict(self)


def read_measurable(file: Path) -> TunedConfig:
    """An export that a device may measure again.

    Raises:
        UsageError: the file is none.
    """
    tuned = read_export(file)
    if tuned is None:
        raise UsageError(f"{file} is no export", "write one: xstage-tune export -o FILE.json")
    return tuned


def verify(tuned: TunedConfig, device: Device) -> Verification:
    """Measure an export's config, and the default that it was found beside, on a device that times in turn.

    Raises:
        UsageError: nothing says what the default is.
        DeviceLost: the device is gone.
    """
    workload, path = tuned.workload, tuned.platform.path
    description = device.describe()
    default = tuned.objective.default
    if default is None:
        default = Defaults(tuned.platform, tuned.default_terms).config(workload, description.sm_count)
    compared = compare_gpu(tuned.platform, identity_of(description)), compare_tool(tuned)
    differs = tuple(difference for one in compared for difference in one.differences)
    exported = _exported(tuned)

    def result(verdict: Verdict, why: str, **found: Any) -> Verification:
        labels = (tuned.config.label, default.label)
        known: dict[str, Any] = {"over_default": None, "latency_ns": None, "exported": exported} | found
        return Verification(workload.name, *labels, verdict, why, differs, device.identity, **known)

    alone = evaluate(device, KernelLaunch(workload, default, path, _SAMPLES, inputs=1))
    if isinstance(alone, Failure):
        return result("not comparable", f"the default does not run here: {alone.reason}")
    launch = KernelLaunch(workload, tuned.config, path, _SAMPLES, against=default, inputs=2)
    found = evaluate(device, launch)
    if isinstance(found, Failure):
        return result("worse", f"the config does not run here: {found.reason}", fault=found.fault)
    ratio = found.run.ratio
    if ratio is None:
        return result("not comparable", f"{device.identity} does not time in turn")
    verdict, why = judge(ratio, exported)
    if differs and verdict != "worse":
        verdict, why = "not comparable", f"{why}; but it was measured on something else"
    return result(verdict, why, over_default=ratio, latency_ns=found.run.median_ns("latency"))


def judge(ratio: Interval, exported: float | None) -> tuple[Verdict, str]:
    """The verdict of a config's time over the default's, and why.

    Args:
        exported: the same when it was exported; None where it was not measured then.
    """
    if ratio.low > 1 and not ratio.within(TOLERANCE):
        return "worse", "it is slower than the default"
    if exported is None:
        if ratio.high < 1:
            return "better", "it is faster than the default; the export's own times are predictions"
        return "same", "it cannot be told from the default; the export's own times are predictions"
    if ratio.low > exported * (1 + TOLERANCE):
        return "worse", "it gains less over the default than when it was exported"
    if ratio.high < exported * (1 - TOLERANCE):
        return "better", "it gains more over the default than when it was exported"
    return "same", "it gains as much over the default as when it was exported"


def _exported(tuned: TunedConfig) -> float | None:
    """The config's time over the default's, as measured when it was exported; None where it was not."""
    objective = tuned.objective
    if objective.basis != "measured" or objective.quantity != "latency" or not objective.default_ns:
        return None
    return objective.ns / objective.default_ns
