"""A study in words: what was asked, what it runs on, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xstage_tune.base.number_format import byte_count, counted, duration, percent, rate
from xstage_tune.estimates.schedule import visibility_latency
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.families.binding import family_of
from xstage_tune.families.kernel_launch import EMULATION_ON
from xstage_tune.families.workload import Workload
from xstage_tune.platforms import queries
from xstage_tune.platforms.schema import PlatformProfile

if TYPE_CHECKING:  # an audit also has its words here, and starts without what a study needs
    from xstage_tune.audit.run import Audit
    from xstage_tune.search.result import SearchResult
    from xstage_tune.search.study_case import StudyCase


def answer_sentence(study: StudyCase) -> str:
    """The outcome in one or two sentences."""
    result = study.result
    best_ns, baseline = result.best.objective_ns, result.baseline
    name = "the default" if result.default else "the best heuristic"
    found = f"The answer is {result.best.config.label}: {result.objective} {duration(best_ns)}"
    if baseline is None:
        answer = f"{found}."
    elif not result.beats_baseline:
        answer = (
            f"Nothing surely beats {name}, whose {result.objective} is {duration(baseline.objective_ns)}: "
            "keep it."
        )
    else:
        less = percent(100 * (1 - best_ns / baseline.objective_ns), 1)
        answer = f"{found}, {less} less than {name}'s {duration(baseline.objective_ns)}."
    if result.objective != "latency" and result.best.latency_ns is not None:
        answer += f" Its launch takes {duration(result.best.latency_ns)}."
    warnings = "".join(f" {warning[0].upper()}{warning[1:]}." for warning in result.warnings)
    return f"{answer}{warnings} {_bound_sentence(result)}"


def search_sentence(study: StudyCase) -> str:
    """How the answer was found."""
    result = study.result
    ties = len(result.ties)
    tied = f"; {counted(ties, 'other config')} cannot be told from it" if ties else ""
    how = f"{_ran(result.device)}; sampler {result.sampler}, seed {result.seed}"
    return (
        f"{counted(result.evaluations, 'config')} evaluated ({how}). Stopped: {result.stopped}{tied}. "
        f"Study {result.study_id}, begun {study.created_at[:16].replace('T', ' ')} UTC."
    )


def _ran(device: str) -> str:
    if device == "simulator":
        return "simulated"
    return device if device.startswith(EMULATION_ON) else f"measured on {device}"


def other_gpu_note(platform: PlatformProfile, differences: str) -> str:
    """That a platform was forced on a GPU that it was not calibrated on."""
    return f"platform {platform.name} was calibrated on another GPU, and forced on this one: {differences}"


def platform_marks(platform: PlatformProfile, other_gpu: str = "") -> tuple[str, ...]:
    """What a result must say of its platform wherever it is shown, each as a sentence.

    Args:
        other_gpu: how the GPU that ran differs from the platform's; empty where it does not.
    """
    marks = (other_gpu and other_gpu_note(platform, other_gpu), unmeasured_compute(platform))
    return tuple(f"{mark[0].upper()}{mark[1:]}." for mark in marks if mark)


def latency_note(platform: PlatformProfile) -> str:
    """T_lat of equation 17, and whether it is assumed."""
    latency = visibility_latency(platform)
    return f"T_lat = {duration(latency.value)} ({latency.basis.label})"


def workload_sentence(workload: Workload) -> str:
    """Shape, routing and remote share of a workload."""
    return f"{workload.name}: {family_of(workload).sentence(workload)}"


def platform_sentence(platform: PlatformProfile) -> str:
    """GPU, path and the fitted M_X of a platform."""
    gpu = platform.gpu
    flavours = sorted({point.flavour for point in platform.capacity})
    held = ", ".join(
        f"Q = {byte_count(float(queries.capacity_bytes(platform, flavour, gpu.sm_count)))} ({flavour})"
        for flavour in flavours
    )
    return (
        f"{platform.name}: {gpu.name}, {gpu.sm_count} SMs, path {platform.path}; "
        f"R = {rate(platform.drain.bytes_per_s, platform.drain.ci95)}, {held} for {gpu.sm_count} producers."
    )


def verdict_sentence(audit: Audit, title: str) -> str:
    """The design test of one config in a sentence."""
    burst = audit.burst
    gap, recovery = duration(audit.gap_ns.value), duration(burst.recovery_gap_ns.value)
    peak, capacity = burst.peak_outstanding_bytes.value, burst.capacity_bytes.value
    relation = "at least" if audit.rate_ok else "below"
    fit = "fit" if audit.capacity_ok else "exceed"
    joined = "and" if audit.rate_ok == audit.capacity_ok else "but"
    lead = " (the wave's: its lead is below D_knee)" if audit.starved else ""
    finite = ""
    if audit.finite is not None:
        share = percent(100 * audit.finite.exposed_part.value, 1)
        finite = f" Simulated, {share} of its launch is what its remote stores expose."
    return (
        f"{title.capitalize()}: {audit.verdict}.{finite} Its gap of {gap}{lead} is {relation} "
        f"G* = {recovery}, "
        f"{joined} the {byte_count(peak)} that one burst of {burst.producers} producers leaves outstanding "
        f"{fit} Q = {byte_count(capacity)}."
    )


def _bound_sentence(result: SearchResult) -> str:
    if result.above_bound is None:
        return "No bound: nothing forces a role to wait."
    within = percent(100 * result.above_bound)
    bound = duration(result.bound_ns)
    return f"No config of the space can be below {bound}, and the answer is within {within} of that."
