"""What a config needs of an SM, term by term, and which limit it breaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xstage_tune.families.budget import Budget, Violation
from xstage_tune.families.config import KernelConfig
from xstage_tune.platforms.schema import PlatformProfile


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


def resources_of(
    config: KernelConfig, platform: PlatformProfile, budgets: Iterable[Budget], rules: Iterable[Violation]
) -> Resources:
    """A config's budgets, and what it breaks: its family's rules, the platform's, then the budgets."""
    budgets = tuple(budgets)
    return Resources(
        budgets,
        (
            *rules,
            *_platform_rules(config, platform),
            *(Violation(b.resource, b.explain(), b.used, b.limit) for b in budgets if not b.fits),
        ),
    )


def _platform_rules(config: KernelConfig, platform: PlatformProfile) -> Iterator[Violation]:
    flavours = sorted({point.flavour for point in platform.issue})
    if config.store_flavour not in flavours:
        yield Violation(
            "store flavour",
            f"platform '{platform.name}' has no {config.store_flavour} times, only {', '.join(flavours)}",
        )
