"""What the instruction set fixes, beside the sizes that a platform's ``compute`` section gives."""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.base.errors import UsageError
from xstage_tune.platforms.loader import list_platforms
from xstage_tune.platforms.schema import Compute, PlatformProfile


@dataclass(frozen=True, slots=True)
class Architecture:
    """Limits of one family of Tensor Cores.

    Args:
        name: of the family.
        cta_group: CTAs that compute one pair of tiles together, each holding half of the tokens' operand.
        tensor_memory: accumulators live in tensor memory, else in registers.
        mma_m: rows of one MMA; the weights' columns (block_n) are its rows.
        mma_m_full_rate: rows that the Tensor Core works on at a time: fewer take as long.
        mma_n_step: the tokens (block_m) are its columns, a multiple of this,
        mma_n_max: and at most this.
        thread_registers: most that a thread of a math warpgroup can be given.
    """

    name: str
    cta_group: int
    tensor_memory: bool
    mma_m: int
    mma_m_full_rate: int
    mma_n_step: int
    mma_n_max: int
    thread_registers: int


# PTX ISA. wgmma.mma_async is m64nNk with N a multiple of 8 up to 256; setmaxnreg leaves a math thread 240
# registers beside a producer warpgroup. tcgen05.mma is m64 or m128 for each CTA of a pair, with N a multiple
# of 16 up to 256.
_HOPPER = Architecture("sm_90", 1, False, 64, 64, 8, 256, 240)
_BLACKWELL = Architecture("sm_100", 2, True, 64, 128, 16, 256, 255)
_FAMILIES = {"sm_90": _HOPPER, "sm_100": _BLACKWELL, "sm_103": _BLACKWELL}


def architecture_of(platform: PlatformProfile) -> Architecture:
    """The family of the platform's GPU.

    Raises:
        UsageError: the kernels have no variant for it.
    """
    family = platform.gpu.architecture.rstrip("af")
    if family not in _FAMILIES:
        raise UsageError(
            f"platform '{platform.name}': no fused kernel for architecture '{platform.gpu.architecture}'",
            f"there are variants for {', '.join(_FAMILIES)}",
        )
    return _FAMILIES[family]


def compute_of(platform: PlatformProfile) -> Compute:
    """The platform's ``compute`` section.

    Raises:
        UsageError: it has none.
    """
    if platform.compute is None:
        file = list_platforms().get(platform.name)
        raise UsageError(
            f"platform '{platform.name}'{f' ({file})' if file else ''} has no compute section, and none is "
            f"known of its GPU, {platform.gpu.name}: nothing tells how long a tile takes",
            f"write one: xstage-tune platforms gpu {platform.name} makes a template to fill in",
        )
    return platform.compute


def unmeasured_compute(platform: PlatformProfile) -> str | None:
    """That tile times rest on published figures, in words; None where they were measured."""
    if platform.compute is None or platform.compute.origin == "measured":
        return None
    return (
        f"compute: {platform.compute.origin}; rates and tile times of {platform.gpu.name} are published "
        "figures or derived from them, not measured here"
    )
