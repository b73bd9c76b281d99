"""The configs that a search may choose from: axes, what fits, and what does not and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from xstage_tune.base.errors import UsageError
from xstage_tune.families.binding import AnyBound, bind, family_of, family_of_config
from xstage_tune.families.budget import Violation
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.family import Axes, Params, Value
from xstage_tune.families.registry import AnyFamily
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Configs that break one limit: how many, and the one that comes nearest to it."""

    limit_name: str
    configs: int
    nearest: str
    used: int | None
    limit: int | None
    hint: str = ""


@dataclass(frozen=True)
class Space:
    """All configs of the axes.

    Args:
        axes: values of each axis, in order; ordered where they are numbers.
        configs: those that fit, in the order of the axes.
        infeasible: the rest, by the first limit that each breaks.
        family: of the workload.
        default: what a tuned config has to beat; None where none fits.
        no_default: why there is none; empty where there is one.
        heuristics: what today's libraries would run, by name.
        yardsticks: what the answer is shown beside that is no config, by name.
    """

    axes: Mapping[str, tuple[Value, ...]]
    configs: tuple[KernelConfig, ...]
    infeasible: tuple[Infeasible, ...]
    index: Mapping[KernelConfig, int] = field(repr=False)
    family: AnyFamily = field(repr=False)
    default: KernelConfig | None = None
    no_default: str = ""
    heuristics: Mapping[str, KernelConfig] = field(default_factory=dict)
    yardsticks: Mapping[str, KernelConfig] = field(default_factory=dict)

    @property
    def baselines(self) -> tuple[KernelConfig, ...]:
        """The default and the heuristics, which are evaluated whatever their bound."""
        default = () if self.default is None else (self.default,)
        return (*default, *self.heuristics.values())

    @property
    def size(self) -> int:
        """All combinations of the axes, whether they fit or not."""
        return len(self.configs) + sum(cut.configs for cut in self.infeasible)


def build_space(
    workload: Workload, platform: PlatformProfile, axes: Mapping[str, tuple[Value, ...]] | None = None
) -> Space:
    """Enumerate the axes' configs and sort out those that cannot run.

    Args:
        axes: values by axis; by default :func:`default_axes`.

    Raises:
        UsageError: none fits; says which limit binds. Or the platform or workload cannot be served.
    """
    bound = bind(workload, platform)
    default, no_default = _default(bound)
    heuristics = _heuristics(bound)
    known = [*([] if default is None else [default]), *heuristics.values()]
    chosen = dict(axes or _axes(bound, known))
    fitting: list[KernelConfig] = []
    broken: dict[str, Infeasible] = {}
    for variants in bound.variants(chosen):
        violations = violations_of(variants.checked, bound, chosen)
        if not violations:
            fitting += variants.configs
            continue
        worst = violations[0]
        found = Infeasible(
            worst.limit_name, variants.count, worst.message, worst.used, worst.limit, worst.hint
        )
        broken[worst.limit_name] = _merged(broken.get(worst.limit_name), found)
    infeasible = tuple(broken[name] for name in sorted(broken))
    if not fitting:
        _refuse(bound, infeasible)
    index = {config: i for i, config in enumerate(fitting)}
    family = family_of(workload)
    return Space(
        chosen, tuple(fitting), infeasible, index, family, default, no_default, heuristics, bound.yardsticks()
    )


def violations_of(
    config: KernelConfig, bound: AnyBound, axes: Mapping[str, tuple[Value, ...]]
) -> tuple[Violation, ...]:
    """Why a config of the axes is not in their space; empty where it is."""
    return (*bound.needless(config, axes), *bound.check(config).violations)


def default_axes(workload: Workload, platform: PlatformProfile) -> Axes:
    """The axes of a workload: usual tile sizes, and whatever the default and the heuristics use.

    Raises:
        UsageError: the platform has no compute section, or an unknown architecture.
    """
    bound = bind(workload, platform)
    default, _ = _default(bound)
    return _axes(bound, [*([] if default is None else [default]), *_heuristics(bound).values()])


def params_of(config: KernelConfig) -> Params:
    """A config as values by axis."""
    return family_of_config(config).params_of(config)


def _axes(bound: AnyBound, known: Iterable[KernelConfig]) -> Axes:
    axes = bound.searched_axes()
    for params in map(params_of, known):
        for name, value in params.items():
            if value not in axes[name]:
                axes[name] = tuple(sorted([*axes[name], value], key=lambda v: (str(type(v)), v)))
    return axes


def _default(bound: AnyBound) -> tuple[KernelConfig | None, str]:
    """The default, or why none fits."""
    try:
        return bound.default(), ""
    except UsageError as error:
        return None, error.message


def _heuristics(bound: AnyBound) -> dict[str, KernelConfig]:
    """Today's choices; none where their tiles do not fit."""
    try:
        return bound.heuristics()
    except UsageError:
        return {}


def _refuse(bound: AnyBound, infeasible: Sequence[Infeasible]) -> NoReturn:
    """Say which limit leaves nothing of a space."""
    binding = max(infeasible, key=lambda cut: cut.configs)
    names = f"'{bound.workload.name}'", f"'{bound.platform.name}'"
    if binding.hint:
        raise UsageError(f"no config of {names[0]} can run on {names[1]}: {binding.nearest}", binding.hint)
    raise UsageError(
        f"no config of {names[0]} fits {names[1]}: {binding.configs} of "
        f"{sum(cut.configs for cut in infeasible)} break the limit of {binding.limit_name}; "
        f"nearest: {binding.nearest}",
        "change the workload's shape (--set), or take another platform",
    )


def _merged(before: Infeasible | None, found: Infeasible) -> Infeasible:
    """Both counts, and the message of the one nearer to its limit."""
    if before is None:
        return found
    closer = before.used is None or (found.used is not None and found.used < before.used)
    return replace(found if closer else before, configs=before.configs + found.configs)
