"""The configs that a search may choose from: axes, what fits, and what does not and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from xstage_tune.configs.architecture import architecture_of
from xstage_tune.configs.attention_budget import BUILT_KV_SPLITS, HEAD_DIM_LIMIT
from xstage_tune.configs.budget import Violation
from xstage_tune.configs.defaults import default_config, heuristic_configs
from xstage_tune.configs.megamoe_budget import OPERAND_SWIZZLE_BYTES, ROW_LIMIT
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig, Schedule, TileOrder
from xstage_tune.configs.tiling import padded_columns, padded_depth
from xstage_tune.errors import UsageError
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.schema import MoeWorkload, Workload

Value = int | str
#: Parameter values by axis; axes that do not apply are absent.
Params = dict[str, Value]

SCHEDULE = "schedule"
#: Axes that only exist under one schedule.
CONDITIONAL = {"experts_per_wave": "wave", "lead_rows": "interleaved"}
#: Of a schedule; no axis of its own, and left out of a config's values where it is "even".
PLACEMENT = "placement"

_LEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Configs that break one limit: how many, and the one that comes nearest to it."""

    limit_name: str
    configs: int
    nearest: str
    used: int | None
    limit: int | None


@dataclass(frozen=True)
class Space:
    """All configs of the axes.

    Args:
        axes: values of each axis, in order; ordered where they are numbers.
        configs: those that fit, in the order of the axes.
        infeasible: the rest, by the first limit that each breaks.
        default: what a tuned config has to beat; None where none fits.
        no_default: why there is none; empty where there is one.
        heuristics: what today's libraries would run, by name.
    """

    axes: Mapping[str, tuple[Value, ...]]
    configs: tuple[KernelConfig, ...]
    infeasible: tuple[Infeasible, ...]
    index: Mapping[KernelConfig, int] = field(repr=False)
    default: KernelConfig | None = None
    no_default: str = ""
    heuristics: Mapping[str, KernelConfig] = field(default_factory=dict)

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
    chosen = dict(axes or default_axes(workload, platform))
    fitting: list[KernelConfig] = []
    broken: dict[str, Infeasible] = {}
    schedules = tuple(_schedules(chosen)) if SCHEDULE in chosen else ()
    for tile in _tiles(chosen, schedules):
        variants = [tile.model_copy(update={SCHEDULE: s}) for s in schedules] or [tile]
        violations = violations_of(tile, workload, platform, chosen)
        if not violations:
            fitting += variants
            continue
        worst = violations[0]
        found = Infeasible(worst.limit_name, len(variants), worst.message, worst.used, worst.limit)
        broken[worst.limit_name] = _merged(broken.get(worst.limit_name), found)
    infeasible = tuple(broken[name] for name in sorted(broken))
    if not fitting:
        binding = max(infeasible, key=lambda cut: cut.configs)
        if binding.limit_name in (HEAD_DIM_LIMIT, ROW_LIMIT):
            default_config(workload, platform)  # which says what the workload can do about it
        raise UsageError(
            f"no config of '{workload.name}' fits '{platform.name}': {binding.configs} of "
            f"{sum(cut.configs for cut in infeasible)} break the limit of {binding.limit_name}; "
            f"nearest: {binding.nearest}",
            "change the workload's shape (--set), or take another platform",
        )
    index = {config: i for i, config in enumerate(fitting)}
    default, no_default = _default(workload, platform)
    heuristics = _heuristics(workload, platform)
    return Space(chosen, tuple(fitting), infeasible, index, default, no_default, heuristics)


def violations_of(
    config: KernelConfig,
    workload: Workload,
    platform: PlatformProfile,
    axes: Mapping[str, tuple[Value, ...]],
) -> tuple[Violation, ...]:
    """Why a config of the axes is not in their space; empty where it is."""
    return (
        *_needless_padding(config, workload, platform, axes),
        *check_config(config, workload, platform).violations,
    )


def _needless_padding(
    tile: KernelConfig,
    workload: Workload,
    platform: PlatformProfile,
    axes: Mapping[str, tuple[Value, ...]],
) -> Iterator[Violation]:
    """Partial tiles are searched only along a side that no value of its axis divides."""
    if not isinstance(tile, MegaMoeConfig) or not isinstance(workload, MoeWorkload):
        return
    architecture = architecture_of(platform)

    def padding(axis: str, value: int) -> str:
        if axis == "block_k":
            return padded_depth(value, workload)
        return padded_columns(value, workload, architecture)

    for axis, value in (("block_n", tile.block_n), ("block_k", tile.block_k)):
        reason = padding(axis, value)
        if reason and not all(padding(axis, int(other)) for other in axes[axis]):
            yield Violation("divisibility", reason)


def _default(workload: Workload, platform: PlatformProfile) -> tuple[KernelConfig | None, str]:
    """The default, or why none fits."""
    try:
        return default_config(workload, platform), ""
    except UsageError as error:
        return None, error.message


def _heuristics(workload: Workload, platform: PlatformProfile) -> dict[str, KernelConfig]:
    """Today's choices; none where their tiles do not fit."""
    try:
        return heuristic_configs(workload, platform)
    except UsageError:
        return {}


def default_axes(workload: Workload, platform: PlatformProfile) -> dict[str, tuple[Value, ...]]:
    """The axes of a workload: usual tile sizes, and whatever the default and the heuristics use.

    Raises:
        UsageError: the platform has no compute section, or an unknown architecture.
    """
    flavours = tuple(sorted({point.flavour for point in platform.issue}))
    if isinstance(workload, MoeWorkload):
        axes = _megamoe_axes(workload, platform)
    else:
        axes = {
            # First, so that of configs that are expected to be equal those that split nothing come first.
            "kv_splits": BUILT_KV_SPLITS.get(architecture_of(platform).name, (1,)),
            "block_m": (64, 128, 192, 256),
            "block_n": (64, 80, 96, 112, 128, 144, 160, 176, 192, 256),
            "kv_stages": (2, 3, 4),
            "output_staging": ("alias-q", "alias-v", "dedicated-x1", "dedicated-x2"),
            "tile_order": get_args(TileOrder),
        }
    axes["store_flavour"] = flavours
    default, _ = _default(workload, platform)
    known = [*([] if default is None else [default]), *_heuristics(workload, platform).values()]
    for params in map(params_of, known):
        for name, value in params.items():
            if value not in axes[name]:
                axes[name] = tuple(sorted([*axes[name], value], key=lambda v: (str(type(v)), v)))
    return axes


def params_of(config: KernelConfig) -> Params:
    """A config as values by axis."""
    params: Params = {
        name: value
        for name, value in config.model_dump(exclude={"kind", SCHEDULE}).items()
        if value is not None
    }
    if isinstance(config, MegaMoeConfig):
        params[SCHEDULE] = config.schedule.kind
        for name in CONDITIONAL:
            value = getattr(config.schedule, name)
            if value is not None:
                params[name] = value
        if config.schedule.placement != "even":
            params[PLACEMENT] = config.schedule.placement
    return params


def config_of(params: Mapping[str, Any]) -> KernelConfig:
    """The config that has these values; the reverse of :func:`params_of`."""
    if SCHEDULE not in params:
        return AttentionConfig.model_validate(dict(params))
    keys = dict(params)
    of_schedule = [name for name in (*CONDITIONAL, PLACEMENT) if name in keys]
    schedule = {"kind": keys.pop(SCHEDULE)} | {name: keys.pop(name) for name in of_schedule}
    return MegaMoeConfig.model_validate(keys | {SCHEDULE: schedule})


def _megamoe_axes(workload: MoeWorkload, platform: PlatformProfile) -> dict[str, tuple[Value, ...]]:
    swizzled = int(OPERAND_SWIZZLE_BYTES / workload.activation_bytes)
    step = architecture_of(platform).mma_n_step
    experts = workload.local_experts
    return {
        "block_m": tuple(m for m in (16, 32, 64, 96, 128, 192, 256) if m % step == 0),
        "block_n": (64, 128, 192, 256),
        "block_k": (swizzled, 2 * swizzled),
        "pipeline_stages": (2, 3, 4, 6, 8),
        "staging_depth": (1, 2, 3, 4),
        "epilogue_warps": (4, 8),
        SCHEDULE: ("wave", "interleaved", "alternating", "clamped-lag"),
        "experts_per_wave": tuple(n for n in range(1, experts + 1) if experts % n == 0),
        "lead_rows": _LEADS,
    }


def _schedules(axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Schedule]:
    for kind in axes[SCHEDULE]:
        parameter = next((name for name, of in CONDITIONAL.items() if of == kind), None)
        for value in axes[parameter] if parameter else (None,):
            yield Schedule.model_validate({"kind": kind} | ({parameter: value} if parameter else {}))


def _tiles(axes: Mapping[str, tuple[Value, ...]], schedules: tuple[Schedule, ...]) -> Iterator[KernelConfig]:
    """Every combination of the axes outside the schedule, under the first schedule."""
    names = [name for name in axes if name != SCHEDULE and name not in CONDITIONAL]
    model: type[MegaMoeConfig] | type[AttentionConfig] = MegaMoeConfig if schedules else AttentionConfig
    for values in itertools.product(*(axes[name] for name in names)):
        keys: dict[str, Any] = dict(zip(names, values, strict=True))
        if schedules:
            keys[SCHEDULE] = schedules[0]
        yield model.model_validate(keys)


def _merged(before: Infeasible | None, found: Infeasible) -> Infeasible:
    """Both counts, and the message of the one nearer to its limit."""
    if before is None:
        return found
    closer = before.used is None or (found.used is not None and found.used < before.used)
    return replace(found if closer else before, configs=before.configs + found.configs)
