"""What a config needs of an SM, term by term, and which limit it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xstage_tune.configs.architecture import architecture_of, compute_of
from xstage_tune.configs.attention_budget import SPLIT_TIMES_LIMIT, attention_budgets, attention_rules
from xstage_tune.configs.budget import Budget, Violation
from xstage_tune.configs.megamoe_budget import megamoe_budgets, megamoe_rules
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.errors import UsageError
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.schema import AttentionWorkload, MoeWorkload, Workload


@dataclass(frozen=True, slots=True)
class Resources:
    """Budgets of a config, and all that it breaks; feasible when that is nothing."""

    budgets: tuple[Budget, ...]
    violations: tuple[Violation, ...]

    @property
    def feasible(self) -> bool:
        return not self.violations

    @property
    def binding(self) -> Budget:
        """The budget that is used most, relative to its limit."""
        return max(self.budgets, key=lambda budget: budget.used / budget.limit)


def check_config(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> Resources:
    """Budgets and violations of ``config`` for ``workload`` on ``platform``.

    Raises:
        UsageError: the config is for another kind of workload, or the platform has no compute section or
            an architecture without kernels.
    """
    architecture, compute = architecture_of(platform), compute_of(platform)
    if isinstance(config, MegaMoeConfig) and isinstance(workload, MoeWorkload):
        budgets = megamoe_budgets(config, workload, architecture, compute)
        rules = megamoe_rules(config, workload, architecture)
    elif isinstance(config, AttentionConfig) and isinstance(workload, AttentionWorkload):
        budgets = attention_budgets(config, workload, architecture, compute)
        rules = attention_rules(config, workload, architecture)
    else:
        raise UsageError(f"a config of kind '{config.kind}' does not fit the workload '{workload.name}'")
    violations = (
        *rules,
        *_platform_rules(config, platform),
        *(Violation(b.resource, b.explain(), b.used, b.limit) for b in budgets if not b.fits),
    )
    return Resources(budgets, violations)


def require_feasible(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> None:
    """Refuse a config that cannot run.

    Raises:
        UsageError: it breaks limits; says which.
    """
    violations = check_config(config, workload, platform).violations
    if violations:
        broken = "; ".join(violation.message for violation in violations)
        raise UsageError(f"config {config.label} cannot run on '{platform.name}': {broken}")


def _platform_rules(config: KernelConfig, platform: PlatformProfile) -> Iterator[Violation]:
    flavours = sorted({point.flavour for point in platform.issue})
    if config.store_flavour not in flavours:
        yield Violation(
            "store flavour",
            f"platform '{platform.name}' has no {config.store_flavour} times, only {', '.join(flavours)}",
        )
    splits = isinstance(config, AttentionConfig) and config.kv_splits > 1
    if splits and all(tile.split is None for tile in compute_of(platform).attention):
        yield Violation(
            SPLIT_TIMES_LIMIT, f"platform '{platform.name}' has no compute.attention tile with split times"
        )
