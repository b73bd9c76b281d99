"""What the MoE kernel that comes with the tool is built for: bf16 and w8a8 on Hopper."""

from __future__ import annotations

from collections.abc import Iterator

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload, Precision
from xstage_tune.platforms.schema import PlatformProfile

#: 227 KiB, what a CTA may have on compute capability 9.0.
SHARED_BYTES_LIMIT = 232_448
#: Rows that a consumer computes; a tile of so many is split between both by its columns.
PART_ROWS = 64
CONSUMERS = 2
#: Columns of a row, and a side of a block of weights, that have one scale.
SCALE_BLOCK = 128
_STAGES = (2, 3, 4, 5, 6, 7, 8)
#: Values of the knobs, as they are combined freely but for what :func:`unbuilt` says. In w8a8 one consumer
#: has whole blocks of activations, whose scales it finds by itself, so there is one tile.
BUILT: dict[Precision, dict[str, tuple[int, ...]]] = {
    "bf16": {
        "block_m": (64, 128),
        "block_n": (128, 256),
        "block_k": (64,),
        "pipeline_stages": _STAGES,
        "epilogue_warps": (8,),
    },
    "w8a8": {
        "block_m": (128,),
        "block_n": (256,),
        "block_k": (128,),
        "pipeline_stages": _STAGES,
        "epilogue_warps": (8,),
    },
}
_ELEMENT_BYTES: dict[Precision, int] = {"bf16": 2, "w8a8": 1}
_OUTPUT_BYTES = 2
_SCALE_BYTES = 4
_ROW_PAD_BYTES = 16  # of a staged row, against bank conflicts
#: Barriers and tiles between the roles.
PIPELINE_BYTES = 1024
#: Of tokens on their way from a rank to the pool.
_PIECES_BYTES = 6 * 2048


def has_kernel(workload: MoeWorkload, platform: PlatformProfile) -> bool:
    """Whether a layer's kernel on this GPU is the one that comes with the tool; others are users' own."""
    return workload.precision in BUILT and platform.gpu.architecture.startswith("sm_90")


def element_bytes(precision: Precision) -> int:
    """Of the kernel's operands.

    Raises:
        UsageError: there is no kernel of this precision.
    """
    if precision not in BUILT:
        raise UsageError(
            f"there is no MoE kernel of {precision} yet, only of {' and '.join(BUILT)}",
            "--set precision=w8a8, or use --device emulate or simulator",
        )
    return _ELEMENT_BYTES[precision]


def stage_bytes(config: MegaMoeConfig, precision: Precision) -> int:
    """Shared memory of one pipeline stage: both operands and, of e4m3, their scales."""
    operands = (config.block_m + config.block_n) * config.block_k * element_bytes(precision)
    # Of the rows, and a vector of 16 bytes for those of the weights.
    return operands + (config.block_m * _SCALE_BYTES + 16 if precision == "w8a8" else 0)


def slot_bytes(config: MegaMoeConfig) -> int:
    """Shared memory of one staging slot: a part of a tile of each consumer."""
    columns = config.block_n // CONSUMERS if config.block_m == PART_ROWS else config.block_n
    return CONSUMERS * PART_ROWS * (columns * _OUTPUT_BYTES + _ROW_PAD_BYTES)


def shared_bytes(config: MegaMoeConfig, precision: Precision, *, dispatch: bool = False) -> int:
    """Dynamic shared memory of a launch, without staged spans.

    Args:
        dispatch: of a kernel that pulls the tokens that were routed to it.
    """
    stages = config.pipeline_stages * stage_bytes(config, precision)
    slots = config.staging_depth * slot_bytes(config)
    return stages + slots + PIPELINE_BYTES + (_PIECES_BYTES if dispatch else 0)


def unbuilt(
    config: MegaMoeConfig, precision: Precision, *, dispatch: bool = False
) -> Iterator[tuple[str, str]]:
    """Why the kernel has no variant of a config, each with what to do; nothing where it has.

    Raises:
        UsageError: there is no kernel of this precision.
    """
    element_bytes(precision)
    for knob, built in BUILT[precision].items():
        value = getattr(config, knob)
        if value not in built:
            yield (
                f"the MoE kernel is not built for {knob} = {value} in {precision}",
                f"choose {knob} from {', '.join(map(str, built))}",
            )
    widest = max(BUILT[precision]["block_n"])
    if config.block_m == PART_ROWS and config.block_n < widest:
        yield (
            f"the MoE kernel is not built for tiles of {config.block_m}x{config.block_n}",
            f"choose block_n = {widest} with block_m = {PART_ROWS}",
        )
    if config.schedule.placement != "even":
        yield f"the MoE kernel has no placement '{config.schedule.placement}'", "choose placement 'even'"
    needed = shared_bytes(config, precision, dispatch=dispatch)
    if needed > SHARED_BYTES_LIMIT:
        yield (
            f"the MoE kernel of {config.label} needs {needed:,} bytes of shared memory, of "
            f"{SHARED_BYTES_LIMIT:,}",
            "choose fewer pipeline_stages, a smaller staging_depth or a smaller tile",
        )


def nearest_built(config: MegaMoeConfig, precision: Precision) -> MegaMoeConfig | None:
    """A config with as many of its staging slots as a variant has, and the most pipeline stages beside them.

    None where none has its tile.
    """
    for slots in range(config.staging_depth, 0, -1):
        for stages in reversed(_STAGES):
            fewer = config.model_copy(update={"staging_depth": slots, "pipeline_stages": stages})
            if not any(unbuilt(fewer, precision)):
                return fewer
    return None
