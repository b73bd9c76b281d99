"""One audit: a workload's kernel against a platform, and the verdict.

Four things are told apart:

- The *design test* of the paper, equation 10: a rate bound and a capacity bound. It is sufficient, for bursts
  that are full, aligned and isolated, on a platform where nothing but stores waits behind stores.
- The *finite run*: the launch on the event simulator, whose CTAs drift apart (:mod:`.finite_run`).
- The *advice*, what would satisfy the bounds. What can be carried out by other values of the config's keys is
  simulated too: what makes the launch longer is no advice, what changes it by little is undecided.
- The *verdict*, which is the finite run's where the closed forms do not settle the question: ``piggyback``
  where the launch hides its remote stores, ``reshape`` where they make it longer by more than a little. The
  closed forms settle it where both bounds hold and no operand load waits behind a burst: what is exposed then
  is the drain of the last burst alone, no matter of their shape. Without a finite run they decide alone: what
  they predict as a stall, and operand loads that wait, count as exposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from xstage_tune.audit.finite_run import MOST_EXPOSED, FiniteRun, simulate_latency_ns, simulate_launch
from xstage_tune.base.errors import UsageError
from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.estimates.schedule import SchedulePrediction
from xstage_tune.families.advice import Action, reconciled, weighed
from xstage_tune.families.binding import bind, default_config, family_of
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.estimate import Estimate
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.launch_size import too_large

Verdict = Literal["reshape", "piggyback"]


@dataclass(frozen=True, slots=True)
class BurstTest:
    """The design test of bursts on a platform, and everything that it rests on."""

    platform: PlatformProfile
    detail: Estimate
    actions: tuple[Action, ...]
    rejected: tuple[Action, ...] = ()  # that the bounds ask for, and that would make the launch longer
    finite: FiniteRun | None = None  # None where the closed forms settle it, or nothing was simulated
    not_simulated: str = ""  # why it could not; else empty

    @property
    def schedule(self) -> str:
        """The audited one of :attr:`predicted`."""
        return self.detail.audited

    @property
    def predicted(self) -> Mapping[str, SchedulePrediction]:
        """What each schedule does with the bursts."""
        return self.detail.schedules

    @property
    def burst(self) -> BurstTerms:
        return self.detail.burst

    @property
    def gap_ns(self) -> Figure:
        """G of the audited schedule."""
        return self.predicted[self.schedule].gap_ns

    @property
    def starved(self) -> bool:
        """See :attr:`~xstage_tune.families.estimate.Estimate.starved`."""
        return self.detail.starved

    @property
    def rate_ok(self) -> bool:
        """The rate bound of equation 10, for MoE interleaving equation 14."""
        return self.predicted[self.schedule].rate_ok

    @property
    def capacity_ok(self) -> bool:
        """The capacity bound of equation 10."""
        return self.burst.capacity_ok

    @property
    def design_test_ok(self) -> bool:
        """Whether both bounds of equation 10 hold."""
        return self.rate_ok and self.capacity_ok

    @property
    def verdict(self) -> Verdict:
        """Whether the kernel hides its remote stores as it is; see the module for what decides."""
        stall_ns = self.predicted[self.schedule].stall_ns.value
        return _verdict(self.finite, self.design_test_ok, self.burst, stall_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(BurstTest):
    """The design test of one config of a workload."""

    workload: Workload
    config: KernelConfig
    config_given: bool  # False: the default config


def audit(
    workload: Workload,
    platform: PlatformProfile,
    config: KernelConfig | None = None,
    *,
    simulate: bool = False,
) -> Audit:
    """Audit ``config``, or the default config, of a workload on a platform.

    Args:
        simulate: whether a launch is simulated where the closed forms do not settle the verdict; one that is
            too large for that is not.

    Raises:
        UsageError: nothing leaves the GPU, the config cannot run, or the platform lacks the figures.
    """
    _require_remote_bytes(workload)
    chosen = config or default_config(workload, platform)
    bound = bind(workload, platform, chosen)
    bound.require_feasible(chosen)
    detail = bound.estimate(chosen)
    audited, burst = detail.schedules[detail.audited], detail.burst
    design_test_ok = audited.rate_ok and burst.capacity_ok
    finite, not_simulated = None, ""
    simulated = simulate and family_of(workload).simulated
    if simulated and (not design_test_ok or _loads_wait(burst)):
        not_simulated = too_large([chosen], workload, platform)
        if not not_simulated:
            finite = simulate_launch(workload, platform, chosen, audited.stall_ns.basis)
    verdict = _verdict(finite, design_test_ok, burst, audited.stall_ns.value)
    advised = bound.advice(chosen, detail)
    rejected: tuple[Action, ...] = ()
    if finite is not None and not finite.hides:
        advised = _tried(advised, workload, platform, finite, audited.stall_ns.basis)
        advised, rejected = weighed(advised, finite.latency_ns.value, MOST_EXPOSED)
    return Audit(
        workload=workload,
        platform=platform,
        config=chosen,
        config_given=config is not None,
        detail=detail,
        actions=reconciled(
            advised,
            hides=verdict == "piggyback",
            stalls=audited.stall_ns.value > 0,
            searched=config is not None,
        ),
        rejected=rejected,
        finite=finite,
        not_simulated=not_simulated,
    )


def _tried(
    advised: tuple[Action, ...],
    workload: Workload,
    platform: PlatformProfile,
    finite: FiniteRun,
    basis: Basis,
) -> tuple[Action, ...]:
    """The advice, with what each change of the config saves of the simulated launch."""
    tried = []
    for action in advised:
        if action.config is not None and not too_large([action.config], workload, platform):
            latency = simulate_latency_ns(workload, platform, action.config, basis)
            saves_ns = finite.latency_ns.value - latency.value
            saves = derived(saves_ns, "simulated launches, without and with it", finite.latency_ns, latency)
            action = replace(action, saves_ns=saves)
        tried.append(action)
    return tuple(tried)


def _verdict(finite: FiniteRun | None, design_test_ok: bool, burst: BurstTerms, stall_ns: float) -> Verdict:
    if finite is not None:
        return "piggyback" if finite.hides else "reshape"
    hidden = design_test_ok or not (stall_ns > 0 or _loads_wait(burst))
    return "piggyback" if hidden else "reshape"


def _loads_wait(burst: BurstTerms) -> bool:
    """Whether operand loads wait behind a burst, which the equations leave out."""
    return burst.operand_wait_ns is not None and burst.operand_wait_ns.value > 0


def _require_remote_bytes(workload: Workload) -> None:
    if not workload.stores_remotely:
        hint = "--set remote_fraction=1.0 is the conservative case"
        if workload.ranks == 1:
            hint = f"--set {workload.RANKS_KEY}=8"
        raise UsageError(
            f"workload '{workload.name}' stores nothing to another GPU: there is no drain to audit", hint
        )
