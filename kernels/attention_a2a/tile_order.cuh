// Order of the output tiles, and who owns their rows. Compiled for the host too, where tests compare it with the
// simulator's (xstage_tune.families.attention_a2a.order).
//
// A rank owns ceil(tokens / ranks) consecutive tokens, the last ranks fewer or none. Place i of the order goes to
// team i % teams (team.cuh). Tiles depend on nothing, so no order can deadlock.
#pragma once

#include "common/host_device.cuh"
#include "common/types.cuh"

namespace xstage {

enum class TileOrder : u32 {
    sequential = 0,  // heads in turn, each from token 0
    rotated = 1,     // heads in turn, each from the first tile of the next rank's tokens
    spread = 2,      // neighbours go to different ranks, beginning at the next rank
    own_last = 3,    // other ranks' tiles of all heads, each from the next rank's first; then this rank's own
};

struct Tile {
    u32 head;
    u32 block;  // of block_m rows
};

class TileGrid {
public:
    XSTAGE_HOST_DEVICE TileGrid(u32 tokens, u32 heads, u32 block_m, u32 ranks, u32 rank)
        : tokens_(tokens),
          heads_(heads),
          block_m_(block_m),
          ranks_(ranks),
          rank_(rank),
          rows_per_rank_((tokens - 1) / ranks + 1),
          blocks_((tokens - 1) / block_m + 1) {}

    XSTAGE_HOST_DEVICE u32 tiles() const { return blocks_ * heads_; }
    XSTAGE_HOST_DEVICE u32 rows_per_rank() const { return rows_per_rank_; }

    XSTAGE_HOST_DEVICE Tile at(TileOrder order, u32 place) const {
        const u32 head = place / blocks_;
        const u32 in_head = place - head * blocks_;
        switch (order) {
            case TileOrder::rotated:
                return {head, (in_head + first_token(next_rank()) / block_m_) % blocks_};
            case TileOrder::spread:
                return {head, spread_block(in_head)};
            case TileOrder::own_last:
                return own_last_tile(place);
            default:
                return {head, in_head};
        }
    }

private:
    XSTAGE_HOST_DEVICE u32 next_rank() const { return rank_ + 1 == ranks_ ? 0 : rank_ + 1; }

    XSTAGE_HOST_DEVICE u32 first_token(u32 rank) const {
        const u64 first = static_cast<u64>(rank) * rows_per_rank_;
        return first < tokens_ ? static_cast<u32>(first) : tokens_;
    }

    // A tile belongs to the rank of its first row.
    XSTAGE_HOST_DEVICE u32 first_block(u32 rank) const { return (first_token(rank) + block_m_ - 1) / block_m_; }
    XSTAGE_HOST_DEVICE u32 blocks_of(u32 rank) const { return first_block(rank + 1) - first_block(rank); }

    // A head's own tiles are neighbours; so are those of the others, around its end.
    XSTAGE_HOST_DEVICE Tile own_last_tile(u32 place) const {
        const u32 own_begin = first_block(rank_);
        const u32 own_end = first_block(rank_ + 1);
        const u32 own = own_end - own_begin;
        const u32 others = blocks_ - own;
        const u32 others_of_all = others * heads_;
        if (place < others_of_all) {
            return {place / others, (own_end + place % others) % blocks_};
        }
        place -= others_of_all;
        return {place / own, own_begin + place % own};
    }

    // Deals one tile of every rank a round, from the next rank on. Rounds in which the same ranks still have tiles
    // are skipped together, so there are at most as many steps as ranks.
    XSTAGE_HOST_DEVICE u32 spread_block(u32 place) const {
        for (u32 round = 0;;) {
            u32 active = 0;
            u32 fewest = ~0u;
            for (u32 rank = 0; rank < ranks_; ++rank) {
                const u32 blocks = blocks_of(rank);
                if (blocks > round) {
                    ++active;
                    fewest = blocks < fewest ? blocks : fewest;
                }
            }
            const u32 dealt = (fewest - round) * active;
            if (place < dealt) {
                return block_of_round(round + place / active, place % active);
            }
            place -= dealt;
            round = fewest;
        }
    }

    // The `turn`-th tile of a round, counting ranks that still have one.
    XSTAGE_HOST_DEVICE u32 block_of_round(u32 round, u32 turn) const {
        for (u32 rank = next_rank();; rank = rank + 1 == ranks_ ? 0 : rank + 1) {
            if (blocks_of(rank) > round && turn-- == 0) {
                return first_block(rank) + round;
            }
        }
    }

    u32 tokens_;
    u32 heads_;
    u32 block_m_;
    u32 ranks_;
    u32 rank_;
    u32 rows_per_rank_;
    u32 blocks_;  // of a head
};

}  // namespace xstage
