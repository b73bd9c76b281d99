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
    def tile_label(self) -> str:
        """What it has in common with others of other orders of tiles."""
        return self.label
