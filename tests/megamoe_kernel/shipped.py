"""All shipped variants of the MoE kernel with their precisions, for tests of each."""

from __future__ import annotations

from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import Precision

VARIANTS: tuple[tuple[Precision, MegaMoeConfig], ...] = tuple(
    (precision, config) for precision, configs in SHIPPED.items() for config in configs
)
#: The first of each precision.
WIDEST: dict[Precision, MegaMoeConfig] = {precision: configs[0] for precision, configs in SHIPPED.items()}


def variant_words(variant: tuple[Precision, MegaMoeConfig]) -> str:
    """Name of a test of a variant."""
    precision, config = variant
    return f"{precision}, {config.tile_label}, {config.store_flavour}"
