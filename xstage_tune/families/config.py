"""What the config of any family says of itself: what a search chooses and a deployment compiles.

Strict, as profiles are. A config alone is only well formed; whether it fits a workload and a platform is
:meth:`xstage_tune.families.family.BoundFamily.check`'s question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xstage_tune.base.field_types import Strict

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StoreFlavour


class KernelConfig(Strict):
    """One variant of a fused kernel; each family's own has its knobs, ``store_flavour`` among them."""

    kind: str
    if TYPE_CHECKING:  # a field of every config, wherever it stands among its knobs
        store_flavour: StoreFlavour

    @property
    def label(self) -> str:
        """In one line, for tables."""
        raise NotImplementedError

    @property
    def schedule_label(self) -> str:
        """Its schedule in a few words; empty where it has none beside its tiles."""
        return ""

    @property
    def is_wave(self) -> bool:
        """Whether tiles that store remotely follow each other in waves, with nothing between them."""
        return False

    @property
    def hands_stores_over(self) -> bool:
        """Whether others store what the role that computes has staged."""
        return False

    @property
    def paces_stores(self) -> bool:
        """Whether those spread a tile's stores over the next mainloop."""
        return False

    @property
    def tile_label(self) -> str:
        """What it has in common with others of other orders of tiles."""
        return self.label
