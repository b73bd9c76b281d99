"""The fused attention for one workload on one platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from xstage_tune.base.number_format import percent
from xstage_tune.families.advice import Action
from xstage_tune.families.attention_a2a.advice import attention_actions
from xstage_tune.families.attention_a2a.budget import (
    BUILT_KV_SPLITS,
    SPLIT_TIMES_LIMIT,
    attention_budgets,
    attention_rules,
)
from xstage_tune.families.attention_a2a.config import AttentionConfig, TileOrder
from xstage_tune.families.attention_a2a.defaults import default_candidates, flash_attention_3
from xstage_tune.families.attention_a2a.estimate import AttentionEstimate, estimate_attention
from xstage_tune.families.attention_a2a.launch import attention_launch
from xstage_tune.families.attention_a2a.load import attention_load
from xstage_tune.families.attention_a2a.tile_times import scaled_from
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.budget import Budget, Violation
from xstage_tune.families.family import Axes, BoundFamily, Judged
from xstage_tune.families.launch import FusedLaunch, GivenTimes


class BoundAttention(BoundFamily[AttentionWorkload, AttentionConfig]):
    """See :class:`~xstage_tune.families.family.BoundFamily`."""

    config_model = AttentionConfig

    def budgets(self, config: AttentionConfig) -> tuple[Budget, ...]:
        """Shared memory, and where scores and output accumulate."""
        return attention_budgets(config, self.workload, self.architecture, self.compute)

    def rules(self, config: AttentionConfig) -> Iterator[Violation]:
        """Of shape, of what is built, and of what is measured."""
        yield from attention_rules(config, self.workload, self.architecture)
        if config.kv_splits > 1 and all(tile.split is None for tile in self.compute.attention):
            yield Violation(
                SPLIT_TIMES_LIMIT,
                f"platform '{self.platform.name}' has no compute.attention tile with split times",
            )

    def default_candidates(self) -> Sequence[AttentionConfig]:
        """What the op runs, then smaller tiles."""
        return default_candidates(self.workload, self.platform)

    def heuristics(self) -> dict[str, AttentionConfig]:
        """FlashAttention-3's 128x176 tile in its order, where it fits."""
        wide = flash_attention_3(self.platform)
        return {"fa3-tile": wide} if self.check(wide).feasible else {}

    def axes(self) -> Axes:
        """Tiles, depths, where an output waits, and the order of tiles."""
        return {
            # First, so that of configs that are expected to be equal those that split nothing come first.
            "kv_splits": BUILT_KV_SPLITS.get(self.architecture.name, (1,)),
            "block_m": (64, 128, 192, 256),
            "block_n": (64, 80, 96, 112, 128, 144, 160, 176, 192, 256),
            "kv_stages": (2, 3, 4),
            "output_staging": ("alias-q", "alias-v", "dedicated-x1", "dedicated-x2"),
            "tile_order": get_args(TileOrder),
        }

    def tiles(self, config: AttentionConfig) -> int:
        """Output tiles; those that CTAs share, once for each CTA."""
        rounds = -(-self.workload.tokens // config.block_m)
        return self.workload.local_heads * rounds * config.kv_splits

    def launch(
        self,
        config: AttentionConfig,
        given: GivenTimes | None = None,
        *,
        dependencies: bool = True,  # noqa: ARG002 - its tiles wait for none
    ) -> FusedLaunch:
        """On rank 0."""
        return attention_launch(config, self.workload, self.platform, given or GivenTimes())

    def judge(self) -> Callable[[AttentionConfig], Judged]:
        """Configs of equal loads and tile orders are twins."""

        def judge(config: AttentionConfig) -> Judged:
            load = attention_load(config, self.workload, self.platform)
            return Judged(load.floors(), load.prediction(), (load, config.tile_order))

        return judge

    def outgrown(self, config: AttentionConfig) -> str | None:
        """By the closed forms of both: tiles that filled their rounds may leave SMs idle at other tokens."""
        judge = self.judge()
        tuned_ns, default_ns = (judge(one).prediction.latency_ns for one in (config, self.default()))
        if tuned_ns <= default_ns:
            return None
        return f"expected to take {percent(100 * (tuned_ns / default_ns - 1), 1)} longer than the default"

    def estimate(
        self,
        config: AttentionConfig,
        given: GivenTimes | None = None,  # noqa: ARG002 - sigma is the platform's
    ) -> AttentionEstimate:
        """Equations 17 to 21."""
        return estimate_attention(self.workload, self.platform, config)

    def skeleton_estimate(
        self,
        config: AttentionConfig,
        given: GivenTimes | None = None,  # noqa: ARG002 - sigma is the platform's
    ) -> AttentionEstimate:
        """A skeleton paces nothing."""
        return estimate_attention(self.workload, self.platform, config, paced=False)

    def advice(self, config: AttentionConfig, estimate: AttentionEstimate) -> tuple[Action, ...]:
        """Longer sequences, smaller bursts, fewer producers."""
        return attention_actions(self.workload, config, estimate, lambda other: self.check(other).feasible)

    def depth(self, config: AttentionConfig) -> int:
        """KV stages."""
        return config.kv_stages

    def scaled_from(self, config: AttentionConfig) -> str | None:
        """The platform's nearest measured tile."""
        return scaled_from(config, self.workload, self.platform)
