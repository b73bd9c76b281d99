"""One audit: a workload's kernel against a platform, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xstage_tune.audit.advice import Action, attention_actions, moe_actions
from xstage_tune.audit.attention import AttentionAudit, audit_attention
from xstage_tune.audit.bursts import BurstTerms
from xstage_tune.audit.figures import Figure
from xstage_tune.audit.moe import MoeAudit, audit_moe
from xstage_tune.audit.prediction import SchedulePrediction
from xstage_tune.configs.defaults import default_config
from xstage_tune.configs.resources import require_feasible
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.errors import UsageError
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.schema import MoeWorkload, Workload

Verdict = Literal["reshape", "piggyback"]


@dataclass(frozen=True, slots=True)
class Audit:
    """The design test of one config, and everything that it rests on."""

    workload: Workload
    platform: PlatformProfile
    config: KernelConfig
    config_given: bool  # False: the default config
    schedule: str  # the audited one of ``predicted``
    detail: MoeAudit | AttentionAudit
    predicted: dict[str, SchedulePrediction]
    rate_ok: bool
    capacity_ok: bool
    actions: tuple[Action, ...]

    @property
    def burst(self) -> BurstTerms:
        return self.detail.burst

    @property
    def gap_ns(self) -> Figure:
        """G of the audited schedule."""
        return self.predicted[self.schedule].gap_ns

    @property
    def starved(self) -> bool:
        """An interleaved layer whose lead is below D_knee."""
        return isinstance(self.detail, MoeAudit) and self.detail.starved

    @property
    def verdict(self) -> Verdict:
        """Reshape when a bound of equation 10 is violated."""
        return "piggyback" if self.rate_ok and self.capacity_ok else "reshape"


def audit(workload: Workload, platform: PlatformProfile, config: KernelConfig | None = None) -> Audit:
    """Audit ``config``, or the default config, of a workload on a platform.

    Raises:
        UsageError: nothing leaves the GPU, the config cannot run, or the platform lacks the figures.
    """
    _require_remote_bytes(workload)
    chosen = config or default_config(workload, platform)
    require_feasible(chosen, workload, platform)
    schedule: str
    detail: MoeAudit | AttentionAudit
    predicted: dict[str, SchedulePrediction]
    if isinstance(workload, MoeWorkload):
        assert isinstance(chosen, MegaMoeConfig)
        detail = audit_moe(workload, platform, chosen)
        schedule, predicted = detail.schedule, detail.predicted
        actions = moe_actions(workload, chosen, detail)
    else:
        assert isinstance(chosen, AttentionConfig)
        detail = audit_attention(workload, platform, chosen)
        schedule, predicted = "piggyback", {"piggyback": detail.predicted}
        actions = attention_actions(workload, chosen, detail)
    return Audit(
        workload=workload,
        platform=platform,
        config=chosen,
        config_given=config is not None,
        schedule=schedule,
        detail=detail,
        predicted=predicted,
        rate_ok=predicted[schedule].rate_ok,
        capacity_ok=detail.burst.capacity_ok,
        actions=actions,
    )


def _require_remote_bytes(workload: Workload) -> None:
    if isinstance(workload, MoeWorkload):
        key, degree = "ep_degree", workload.ep_degree
    else:
        key, degree = "degree", workload.degree
    if not workload.stores_remotely:
        hint = f"--set {key}=8" if degree == 1 else "--set remote_fraction=1.0 is the conservative case"
        raise UsageError(
            f"workload '{workload.name}' stores nothing to another GPU: there is no drain to audit", hint
        )
