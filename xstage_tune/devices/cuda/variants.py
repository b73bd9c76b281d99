"""Every kernel variant that the tool can launch, so that all can be compiled ahead and in tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """One file of kernels with one setting of its knobs."""

    source: str  # below the kernels folder
    names: tuple[str, ...]
    defines: dict[str, int | str] = field(default_factory=dict)


def kernel_variants() -> tuple[KernelVariant, ...]:
    """All variants, in the order in which a calibration meets them."""
    bursts = ("periodic_bursts", "isolated_bursts", "timer_tick")
    return (
        *(KernelVariant("calibration/bursts.cu", bursts, {"STORE_FLAVOUR": flavour}) for flavour in (0, 1)),
        KernelVariant("calibration/verify.cu", ("verify_bursts",)),
    )
