"""The fused MoE kernel for one layer on one platform."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from xstage_tune.families.advice import Action
from xstage_tune.families.budget import Budget, Violation
from xstage_tune.families.family import Axes, BoundFamily, Judged, Ordered, Value, Variants
from xstage_tune.families.floors import Floors
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.megamoe.advice import moe_actions
from xstage_tune.families.megamoe.axes import CONDITIONAL, SCHEDULE
from xstage_tune.families.megamoe.budget import OPERAND_SWIZZLE_BYTES, megamoe_budgets, megamoe_rules
from xstage_tune.families.megamoe.built import BUILT, has_kernel, nearest_built, unbuilt
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule, ScheduleKind
from xstage_tune.families.megamoe.defaults import base_candidates, schedule_of_kind, with_staging_depth
from xstage_tune.families.megamoe.estimate import MoeEstimate, estimate_moe
from xstage_tune.families.megamoe.estimate_times import given_times
from xstage_tune.families.megamoe.floors import moe_floors
from xstage_tune.families.megamoe.kernel_budget import kernel_budgets
from xstage_tune.families.megamoe.launch import moe_launch
from xstage_tune.families.megamoe.load import MoeLoad, moe_load
from xstage_tune.families.megamoe.ranking import predict_moe
from xstage_tune.families.megamoe.routing import busiest_tokens
from xstage_tune.families.megamoe.schedule_model import ScheduleModel
from xstage_tune.families.megamoe.schedule_terms import schedule_model
from xstage_tune.families.megamoe.tiling import padded_columns, padded_depth
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.prediction import Prediction

_LEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class BoundMegaMoe(BoundFamily[MoeWorkload, MegaMoeConfig]):
    """See :class:`~xstage_tune.families.family.BoundFamily`."""

    config_model = MegaMoeConfig

    @cached_property
    def tokens_per_expert(self) -> NDArray[np.int64]:
        """``[local_experts]`` tokens of the rank that receives most, which sets the layer's time."""
        return busiest_tokens(self.workload)

    def budgets(self, config: MegaMoeConfig) -> tuple[Budget, ...]:
        """Shared memory, where the accumulators live, and threads."""
        if has_kernel(self.workload, self.platform) and not any(unbuilt(config, self.workload.precision)):
            return kernel_budgets(config, self.workload.precision, self.architecture, self.compute)
        return megamoe_budgets(config, self.workload, self.architecture, self.compute)

    def rules(self, config: MegaMoeConfig) -> Iterator[Violation]:
        """Of shape."""
        return megamoe_rules(config, self.workload, self.architecture)

    def default(self) -> MegaMoeConfig:
        """The expert-wave schedule that the paper compares with, with DeepGEMM's static choices.

        A wave has the fewest experts whose Linear-1 tiles fill all SMs twice, rounded up to a divisor of the
        local experts.
        """
        return self.with_schedule("wave")

    def with_schedule(self, kind: Any) -> MegaMoeConfig:
        """The default's tiles under a schedule of a kind, with its usual parameter.

        Raises:
            UsageError: as :meth:`default`.
        """
        base = self.first_feasible(self.default_candidates())
        schedule = schedule_of_kind(kind, base, self.workload, self.platform)
        return base.model_copy(update={"schedule": schedule})

    def default_candidates(self) -> Sequence[MegaMoeConfig]:
        """The tiles of which the default takes the first that fit; of a layer with a kernel those built."""
        candidates = base_candidates(self.workload, self.platform)
        if not has_kernel(self.workload, self.platform):
            return candidates
        # Of few tokens tiles are lower than any that is built.
        precision = self.workload.precision
        lowest = min(BUILT[precision]["block_m"])
        raised = (one.model_copy(update={"block_m": lowest}) for one in candidates)
        return [built for one in (*candidates, *raised) if (built := nearest_built(one, precision))]

    def heuristics(self) -> dict[str, MegaMoeConfig]:
        """The default's tiles under DeepGEMM's schedule, and under that of its open Hopper change."""
        return {kind: self.with_schedule(kind) for kind in ("alternating", "clamped-lag")}

    def axes(self) -> Axes:
        """Tiles, depths and schedules with their parameters."""
        swizzled = int(OPERAND_SWIZZLE_BYTES / self.workload.activation_bytes)
        step = self.architecture.mma_n_step
        experts = self.workload.local_experts
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

    def variants(self, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Variants[MegaMoeConfig]]:
        """A tile under every schedule: what it takes of an SM is the same."""
        schedules = tuple(_schedules(axes))
        names = [name for name in axes if name != SCHEDULE and name not in CONDITIONAL]
        for values in itertools.product(*(axes[name] for name in names)):
            keys: dict[str, Any] = dict(zip(names, values, strict=True))
            tile = MegaMoeConfig.model_validate(keys | {SCHEDULE: schedules[0]})
            each = (tile.model_copy(update={SCHEDULE: schedule}) for schedule in schedules)
            yield Variants(tile, len(schedules), each)

    def needless(self, config: MegaMoeConfig, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Violation]:
        """Partial tiles are searched only along a side that no value of its axis divides.

        Where the layer's kernel comes with the tool, what that is not built for only where the axes leave
        nothing else.
        """
        if self._reaches_built(axes):
            for reason, _ in unbuilt(config, self.workload.precision):
                yield Violation("MoE kernel", reason)
        yield from self._padded(config, axes)

    def _padded(self, config: MegaMoeConfig, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Violation]:
        # What the layer's kernel is not built for is no alternative to what it is.
        precision, own = self.workload.precision, has_kernel(self.workload, self.platform)
        own = own and not any(unbuilt(config, precision))
        for axis, value in (("block_n", config.block_n), ("block_k", config.block_k)):
            others = [int(one) for one in axes[axis] if not own or one in BUILT[precision][axis]]
            reason = self._padding(axis, value)
            if reason and not all(self._padding(axis, other) for other in others):
                yield Violation("divisibility", reason)

    def _reaches_built(self, axes: Mapping[str, tuple[Value, ...]]) -> bool:
        """Whether the layer has a kernel, and some tile of the axes is one that it is built for and fits."""
        if not has_kernel(self.workload, self.platform):
            return False
        key = tuple(axes.items())
        if key not in self._reaching:
            precision, tiles = self.workload.precision, (one.checked for one in self.variants(axes))
            built = (tile for tile in tiles if not any(unbuilt(tile, precision)))
            self._reaching[key] = any(
                not any(self._padded(tile, axes)) and self.check(tile).feasible for tile in built
            )
        return self._reaching[key]

    @cached_property
    def _reaching(self) -> dict[Hashable, bool]:
        return {}

    def _padding(self, axis: str, value: int) -> str:
        if axis == "block_k":
            return padded_depth(value, self.workload)
        return padded_columns(value, self.workload, self.architecture)

    def tiles(self, config: MegaMoeConfig) -> int:
        """Of both layers, of the rank that receives most."""
        shapes = (self.workload.linear1_shape, self.workload.linear2_shape)
        row_tiles = sum(-(-columns // config.block_n) for columns, _ in shapes)
        return int((-(-self.tokens_per_expert // config.block_m)).sum()) * row_tiles

    def launch(
        self, config: MegaMoeConfig, given: GivenTimes | None = None, *, dependencies: bool = True
    ) -> FusedLaunch:
        """On the rank that receives most."""
        return moe_launch(config, self.workload, self.platform, given or GivenTimes(), dependencies)

    def ordered(self, config: MegaMoeConfig, order: str, placement: str) -> Ordered[MegaMoeConfig]:
        """See :class:`~xstage_tune.families.family.BoundFamily`."""
        schedule = config.schedule
        if order != schedule.kind:
            kind = next(one for one in get_args(ScheduleKind) if one == order)
            schedule = schedule_of_kind(kind, config, self.workload, self.platform)
        schedule = schedule.model_copy(update={"placement": placement})
        name = order + (", by share" if placement == "share" else "")
        return Ordered(schedule.label, name, config.model_copy(update={"schedule": schedule}))

    def with_knob(self, config: MegaMoeConfig, knob: str, value: int) -> MegaMoeConfig:
        """The lead of the interleaved schedule, or S beside as many pipeline stages as it leaves room for."""
        if knob == "lead":
            schedule = Schedule(kind="interleaved", lead_rows=value)
            return config.model_copy(update={"schedule": schedule})
        return with_staging_depth(config, value, self.workload, self.platform)

    def judge(self) -> Callable[[MegaMoeConfig], Judged]:
        """Loads are shared by all schedules of a tile, predictions by all tiles of equal loads."""
        loads: dict[Hashable, tuple[MoeLoad, Floors]] = {}
        predictions: dict[Hashable, Prediction] = {}

        def judge(config: MegaMoeConfig) -> Judged:
            tile = (
                config.block_m, config.block_n, config.block_k, config.pipeline_stages,
                config.staging_depth, config.epilogue_warps, config.store_flavour,
            )  # fmt: skip
            if tile not in loads:
                load = moe_load(config, self.workload, self.platform)
                loads[tile] = load, moe_floors(load)
            load, floors = loads[tile]
            shared = (load.slots, load.linear1, load.linear2, load.capacity_bytes, load.load_cover_ns)
            key = (config.schedule, config.block_m, *shared)
            if key not in predictions:
                predictions[key] = predict_moe(load, config.schedule)
            return Judged(floors, predictions[key], key)

        return judge

    def estimate(self, config: MegaMoeConfig, given: GivenTimes | None = None) -> MoeEstimate:
        """Equations 11 to 16."""
        return estimate_moe(self.workload, self.platform, config, given_times(given))

    def advice(self, config: MegaMoeConfig, estimate: MoeEstimate) -> tuple[Action, ...]:
        """To interleave, or with a longer lead; smaller bursts, fewer producers."""
        return moe_actions(config, estimate, lambda other: self.check(other).feasible)

    def schedule_model(self, config: MegaMoeConfig) -> ScheduleModel:
        """See :mod:`xstage_tune.export.schedule_choice`."""
        return schedule_model(self.workload, self.platform, config)

    def depth(self, config: MegaMoeConfig) -> int:
        """Pipeline stages."""
        return config.pipeline_stages


def _schedules(axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Schedule]:
    for kind in axes[SCHEDULE]:
        parameter = next((name for name, of in CONDITIONAL.items() if of == kind), None)
        for value in axes[parameter] if parameter else (None,):
            yield Schedule.model_validate({"kind": kind} | ({parameter: value} if parameter else {}))
