"""From a workload, a platform and a config of any family to that family."""

from __future__ import annotations

from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.family import BoundFamily
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.registry import AnyFamily, family_of_config_kind, family_of_workload_kind
from xstage_tune.families.resources import Resources
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile

AnyBound = BoundFamily[Any, Any]


def family_of(workload: Workload) -> AnyFamily:
    """The family of a workload."""
    family = family_of_workload_kind(workload.kind)
    assert family is not None, f"workload '{workload.name}' was read, so its family is known"
    return family


def family_of_config(config: KernelConfig) -> AnyFamily:
    """The family of a config."""
    family = family_of_config_kind(config.kind)
    assert family is not None, f"config {config.label} was read, so its family is known"
    return family


def require_kind(config: KernelConfig, workload: Workload) -> None:
    """Refuse a config of another family than the workload's.

    Raises:
        UsageError: says which kind it should be.
    """
    kind = family_of(workload).config_kind
    if config.kind != kind:
        raise UsageError(
            f"a config of kind '{config.kind}' does not fit the workload '{workload.name}'",
            f"give one of kind '{kind}', or --config default",
        )


def bind(workload: Workload, platform: PlatformProfile, config: KernelConfig | None = None) -> AnyBound:
    """The family of a workload, for it and a platform.

    Args:
        config: one that is to be of that family.

    Raises:
        UsageError: the config is for another kind of workload.
    """
    if config is not None:
        require_kind(config, workload)
    return family_of(workload).bind(workload, platform)


def check_config(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> Resources:
    """Budgets and violations of ``config`` for ``workload`` on ``platform``.

    Raises:
        UsageError: the config is for another kind of workload, or the platform has no compute section or
            an architecture without kernels.
    """
    return bind(workload, platform, config).check(config)


def require_feasible(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> None:
    """Refuse a config that cannot run.

    Raises:
        UsageError: it breaks limits; says which. Or as :func:`check_config`.
    """
    bind(workload, platform, config).require_feasible(config)


def default_config(workload: Workload, platform: PlatformProfile) -> KernelConfig:
    """The baseline that a tuned config has to beat.

    Raises:
        UsageError: no such config fits the shapes or the platform; says which limit binds.
    """
    chosen: KernelConfig = bind(workload, platform).default()
    return chosen


def fused_launch(
    workload: Workload,
    config: KernelConfig,
    platform: PlatformProfile,
    *,
    given: GivenTimes | None = None,
    dependencies: bool = True,
) -> FusedLaunch:
    """The launch of a config on the rank that sets the workload's time.

    Args:
        given: tile times in place of the compute model's.
        dependencies: False runs tiles as if their inputs were ready.

    Raises:
        UsageError: the config does not fit the workload or the platform, or the platform lacks compute
            figures.
    """
    bound = bind(workload, platform, config)
    bound.require_feasible(config)
    return bound.launch(config, given, dependencies=dependencies)
