"""Kernel variants: a file of kernels with one setting of its knobs. Here those of a calibration."""

from __future__ import annotations

from dataclasses import dataclass, field

from xstage_tune.base.fabric import STORE_FLAVOURS, StoreFlavour
from xstage_tune.cuda.sources import SKELETON_SOURCE


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """One file of kernels with one setting of its knobs."""

    source: str  # below the kernels folder
    names: tuple[str, ...]
    defines: dict[str, int | str] = field(default_factory=dict)


#: The owner's check of a destination in GPU memory.
VERIFY = KernelVariant("calibration/verify.cu", ("verify_bursts",))

#: The owner's check of what a skeleton left in GPU memory.
VERIFY_EXTENTS = KernelVariant("emulation/verify.cu", ("verify_extents",))

_FLAVOUR_MACRO: dict[StoreFlavour, int] = {"st.v4": 0, "tma": 1}


def bursts_variant(flavour: StoreFlavour) -> KernelVariant:
    """The burst kernels of one store flavour."""
    names = ("periodic_bursts", "isolated_bursts", "timer_tick")
    return KernelVariant("calibration/bursts.cu", names, {"STORE_FLAVOUR": _FLAVOUR_MACRO[flavour]})


def skeleton_variant(flavour: StoreFlavour, *, listed: bool) -> KernelVariant:
    """The skeleton of one store flavour, with MegaMoE's scheduler or a listed order."""
    defines: dict[str, int | str] = {"STORE_FLAVOUR": _FLAVOUR_MACRO[flavour], "TILE_SOURCE": int(listed)}
    return KernelVariant(SKELETON_SOURCE, ("skeleton",), defines)


def kernel_variants() -> tuple[KernelVariant, ...]:
    """All variants of calibration, then those of emulation, in the order in which a run meets them."""
    calibration = *(bursts_variant(flavour) for flavour in STORE_FLAVOURS), VERIFY
    skeletons = (
        skeleton_variant(flavour, listed=listed) for listed in (False, True) for flavour in STORE_FLAVOURS
    )
    return *calibration, *skeletons, VERIFY_EXTENTS
