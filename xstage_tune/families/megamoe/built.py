"""What the MoE kernel that comes with the tool is built for: bf16 on Hopper."""

from __future__ import annotations

from collections.abc import Iterator

from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.platforms.schema import PlatformProfile

#: 227 KiB, what a CTA may have on compute capability 9.0.
SHARED_BYTES_LIMIT = 232_448
#: Rows that a consumer computes; a tile of so many is split between both by its columns.
PART_ROWS = 64
CONSUMERS = 2
#: Values of the knobs, as they are combined freely but for what :func:`unbuilt` says.
BUILT: dict[str, tuple[int, ...]] = {
    "block_m": (64, 128),
    "block_n": (128, 256),
    "block_k": (64,),
    "pipeline_stages": (2, 3, 4, 5, 6, 7, 8),
    "epilogue_warps": (8,),
}
_ELEMENT_BYTES = 2
_ROW_PAD_BYTES = 16  # of a staged row, against bank conflicts
_PIPELINE_BYTES = 1024
#: Of tokens on their way from a rank to the pool.
_PIECES_BYTES = 4 * 2048


def has_kernel(workload: MoeWorkload, platform: PlatformProfile) -> bool:
    """Whether a layer's kernel on this GPU is the one that comes with the tool; others are users' own."""
    return workload.precision == "bf16" and platform.gpu.architecture.startswith("sm_90")


def shared_bytes(config: MegaMoeConfig, *, dispatch: bool = False) -> int:
    """Dynamic shared memory of a launch, without staged spans.

    Args:
        dispatch: of a kernel that pulls the tokens that were routed to it.
    """
    stage = (config.block_m + config.block_n) * config.block_k * _ELEMENT_BYTES
    columns = config.block_n // CONSUMERS if config.block_m == PART_ROWS else config.block_n
    slot = PART_ROWS * (columns * _ELEMENT_BYTES + _ROW_PAD_BYTES)
    buffers = config.pipeline_stages * stage + CONSUMERS * config.staging_depth * slot
    return buffers + _PIPELINE_BYTES + (_PIECES_BYTES if dispatch else 0)


def unbuilt(config: MegaMoeConfig, *, dispatch: bool = False) -> Iterator[tuple[str, str]]:
    """Why the kernel has no variant of a config, each with what to do; nothing where it has."""
    for knob, built in BUILT.items():
        value = getattr(config, knob)
        if value not in built:
            yield (
                f"the MoE kernel is not built for {knob} = {value}",
                f"choose {knob} from {', '.join(map(str, built))}",
            )
    widest = max(BUILT["block_n"])
    if config.block_m == PART_ROWS and config.block_n < widest:
        yield (
            f"the MoE kernel is not built for tiles of {config.block_m}x{config.block_n}",
            f"choose block_n = {widest} with block_m = {PART_ROWS}",
        )
    if config.schedule.placement != "even":
        yield f"the MoE kernel has no placement '{config.schedule.placement}'", "choose placement 'even'"
    needed = shared_bytes(config, dispatch=dispatch)
    if needed > SHARED_BYTES_LIMIT:
        yield (
            f"the MoE kernel of {config.label} needs {needed:,} bytes of shared memory, of "
            f"{SHARED_BYTES_LIMIT:,}",
            "choose fewer pipeline_stages, a smaller staging_depth or a smaller tile",
        )


def nearest_built(config: MegaMoeConfig) -> MegaMoeConfig | None:
    """A config with as many pipeline stages of its own as a variant has; None where none has its tile."""
    for stages in range(config.pipeline_stages, 0, -1):
        fewer = config.model_copy(update={"pipeline_stages": stages})
        if not any(unbuilt(fewer)):
            return fewer
    return None
