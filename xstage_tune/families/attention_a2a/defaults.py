"""Attention configs that need no search, pure functions of the shapes and the GPU."""

from __future__ import annotations

from math import ceil

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.families.architecture import architecture_of
from xstage_tune.families.attention_a2a.budget import BUILT_BLOCK_M
from xstage_tune.families.attention_a2a.config import AttentionConfig, OutputStaging, TileOrder
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.platforms.queries import preferred_flavour
from xstage_tune.platforms.schema import PlatformProfile

#: Rows and KV rows of FlashAttention-3's tile, and of FlashAttention-4's.
_WIDE, _SQUARE = (128, 176), (128, 128)
#: Where the architecture has no kernel, or its default does not fit: the first that does.
_SMALLER = (_SQUARE, (128, 64), (64, 64), (64, 32))
#: Time of a KV row in tiles of 128, over that of one in tiles of 176: 1,422 / 128 over 1,899 / 176 ns on an
#: H200 at head dim 128, 1.04 at 64 (``compute.attention`` of its platforms).
_WIDE_GAIN = 1.03


def default_candidates(workload: AttentionWorkload, platform: PlatformProfile) -> list[AttentionConfig]:
    """:func:`default_attention_config` where the kernel is built for the architecture, then smaller tiles."""
    flavour = preferred_flavour(platform)
    smaller = [_config(*tile, "alias-v", "rotated", flavour) for tile in _SMALLER]
    if architecture_of(platform).name not in BUILT_BLOCK_M:
        return smaller
    sms = platform.gpu.sm_count
    return [default_attention_config(workload.tokens, workload.local_heads, sms, flavour), *smaller]


def default_attention_config(
    tokens: int, heads: int, sms: int, store_flavour: StoreFlavour = "st.v4"
) -> AttentionConfig:
    """What a search has to beat and the op runs where none is given: tiles whose rounds take the least time.

    A round of 192-row tiles on all SMs takes about as long as one and a half of 128 rows. At 3 heads, 8,192
    tokens are one round of 129 tiles, or two of 128 rows whose second is half empty. Equal times go to 128
    rows, which then meet 176 KV rows at a time as FlashAttention-3's do, or 128 where 176 would pad the
    sequence by more than they save.

    The order is rotated: in that of FlashAttention all ranks first store to rank 0. A simulation of one rank
    does not see that.

    Args:
        tokens, heads: of this rank's attention, over all tokens.
        sms: SMs of the GPU.
    """

    def rows_in_turn(block_m: int) -> int:
        return block_m * ceil(heads * ceil(tokens / block_m) / sms)

    def kv_rows(block_n: int) -> int:
        return block_n * ceil(tokens / block_n)

    if rows_in_turn(192) < rows_in_turn(128):
        return _config(192, 128, "alias-q", "rotated", store_flavour)
    wide = kv_rows(_WIDE[1]) <= _WIDE_GAIN * kv_rows(_SQUARE[1])
    return _config(*(_WIDE if wide else _SQUARE), "alias-v", "rotated", store_flavour)


def known_tiles() -> tuple[AttentionConfig, ...]:
    """What stands in for a default that a compiler makes no usable kernel of: ever fewer registers."""
    return tuple(_config(_SQUARE[0], rows, "alias-v", "rotated", "st.v4") for rows in (128, 96, 64))


def flash_attention_3(platform: PlatformProfile) -> AttentionConfig:
    """Its tile in its order: heads in turn, each from token 0."""
    return _config(*_WIDE, "alias-v", "sequential", preferred_flavour(platform))


def _config(
    block_m: int, block_n: int, staging: OutputStaging, order: TileOrder, flavour: StoreFlavour
) -> AttentionConfig:
    return AttentionConfig(
        block_m=block_m,
        block_n=block_n,
        kv_stages=2,
        output_staging=staging,
        tile_order=order,
        store_flavour=flavour,
    )
