// CTAs that make output tiles together.
//
// One CTA a team; or where KV is split a cluster of two, each of which works on all query rows of the team's tiles, but
// on a half of the KV rows. They merge what they have (partials.cuh), and each finishes and stores the rows of one of
// its consumers. So a tile is there in half the time, and half as many tiles at once: the first stores leave earlier,
// and fewer are left when no Q-loop follows.
#pragma once

#include "attention_a2a/arguments.cuh"
#include "attention_a2a/config.cuh"
#include "attention_a2a/tile_order.cuh"

namespace xstage {

// Tiles go to teams in turn.
__device__ __forceinline__ u32 team() { return blockIdx.x / kKvSplits; }
__device__ __forceinline__ u32 teams(const AttentionArguments& arguments) { return arguments.ctas / kKvSplits; }

// This CTA's number in its team.
__device__ __forceinline__ u32 team_part() { return blockIdx.x % kKvSplits; }

__device__ __forceinline__ bool finishes(u32 consumer) { return kKvSplits == 1 || consumer == team_part(); }

// A consumer's number among those of its CTA that finish rows, and the reverse.
__device__ __forceinline__ u32 finisher_of(u32 consumer) { return kKvSplits == 1 ? consumer : 0; }
__device__ __forceinline__ u32 finishing_consumer(u32 finisher) { return kKvSplits == 1 ? finisher : team_part(); }

__device__ __forceinline__ u32 tiles_of_team(const AttentionArguments& arguments, const TileGrid& grid) {
    return grid.tiles() > team() ? (grid.tiles() - team() - 1) / teams(arguments) + 1 : 0;
}

// KV tiles of one CTA.
struct KvRange {
    u32 first;
    u32 tiles;
};

// The last tile, which may be a partial one, is the first part's, and so is the odd one.
__device__ __forceinline__ KvRange kv_range(u32 kv_tiles) {
    const u32 later_half = kv_tiles / kKvSplits * (kKvSplits - 1);
    return team_part() == 0 ? KvRange{later_half, kv_tiles - later_half} : KvRange{0, later_half};
}

}  // namespace xstage
