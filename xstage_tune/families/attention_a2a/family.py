"""FlashAttention with the Ulysses All-to-All, as a family."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from xstage_tune.families.attention_a2a.config import AttentionConfig, TileOrder
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.family import Family
from xstage_tune.platforms.schema import PlatformProfile

if TYPE_CHECKING:
    from xstage_tune.families.attention_a2a.bound import BoundAttention


class AttentionFamily(Family[AttentionWorkload, AttentionConfig]):
    """See :class:`~xstage_tune.families.family.Family`."""

    workload_kind = "attention"
    config_kind = "attention"
    workload_model = AttentionWorkload
    config_model = AttentionConfig
    orders = get_args(TileOrder)
    mainloops = ("q",)
    kernel_source = "attention_a2a/attention.cu"
    template_heading = (
        "A Ulysses self-attention, for xstage-tune. The values are examples: put in those of yours."
    )

    def bind(self, workload: AttentionWorkload, platform: PlatformProfile) -> BoundAttention:
        """See :class:`~xstage_tune.families.family.Family`."""
        from xstage_tune.families.attention_a2a.bound import BoundAttention  # a lookup needs none of it

        return BoundAttention(workload, platform)

    def shape_words(self, workload: AttentionWorkload) -> str:
        """See :mod:`~xstage_tune.families.attention_a2a.words`."""
        from xstage_tune.families.attention_a2a import words

        return words.shape_words(workload)

    def facts(self, workload: AttentionWorkload) -> list[tuple[str, str]]:
        """See :mod:`~xstage_tune.families.attention_a2a.words`."""
        from xstage_tune.families.attention_a2a import words

        return words.facts(workload)

    def derived(self, workload: AttentionWorkload) -> dict[str, object]:
        """See :mod:`~xstage_tune.families.attention_a2a.words`."""
        from xstage_tune.families.attention_a2a import words

        return words.derived(workload)

    def sentence(self, workload: AttentionWorkload) -> str:
        """See :mod:`~xstage_tune.families.attention_a2a.words`."""
        from xstage_tune.families.attention_a2a import words

        return words.sentence(workload)


FAMILY = AttentionFamily()
