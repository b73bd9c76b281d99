// How the producer warp and the consumer warpgroups of a CTA hand buffers to each other.
#pragma once

#include "attention_a2a/config.cuh"
#include "attention_a2a/team.cuh"
#include "attention_a2a/tile_order.cuh"
#include "common/mbarrier.cuh"
#include "common/ring.cuh"

namespace xstage {

// What a consumer hands to its storer warp with the rows.
struct StagedTile {
    Tile tile;
    u32 loop_cycles;  // that its Q-loop took
};

struct Pipeline {
    Mbarrier query_full;              // producer's copies: this tile's Q, and `tile`
    Mbarrier query_empty;             // every consumer warp: Q, and what is staged in its place, are read
    Mbarrier key_full[kKvStages];     // producer's copies
    Mbarrier key_empty[kKvStages];    // every consumer warp: its product with K is done
    Mbarrier value_full[kKvStages];   // producer's copies
    Mbarrier value_empty[kKvStages];  // every consumer warp: its product with V is done
    Mbarrier alias_empty;             // every consumer warp: the output staged in V's buffers is read
    Mbarrier staged_full[kFinishers][kStagingSlots];   // the consumer's four warps: their rows are staged
    Mbarrier staged_empty[kFinishers][kStagingSlots];  // the consumer's storer warp: it has read them
    Mbarrier partial_full;   // the other CTA's stores: its part of these rows' output is here
    Mbarrier partial_empty;  // warps of the other CTA's consumer that finishes: they have read what was stored there
    Tile tile;
    u32 output_slot;  // of the ranks' buffers, or kRefused; there when the first tile's last V is
    StagedTile staged_tile[kFinishers][kStagingSlots];  // whose rows are staged for the storer warp
    u32 loop_begin_cycles[kFinishers];                  // of the consumer's Q-loop, of a clock that wraps around

    // One thread, before a barrier of the CTA.
    __device__ void init() {
        query_full.init(1);
        query_empty.init(kConsumerWarps);
        for (u32 stage = 0; stage < kKvStages; ++stage) {
            key_full[stage].init(1);
            value_full[stage].init(1);
            key_empty[stage].init(kConsumerWarps);
            value_empty[stage].init(kConsumerWarps);
        }
        alias_empty.init(kConsumerWarps);
        output_slot = 0;
        partial_full.init(1);
        partial_empty.init(4);
        for (u32 finisher = 0; finisher < kFinishers; ++finisher) {
            for (u32 slot = 0; slot < kStagingSlots; ++slot) {
                staged_full[finisher][slot].init(4);
                staged_empty[finisher][slot].init(1);
            }
        }
        fence_barrier_init();
    }
};
static_assert(sizeof(Pipeline) <= kPipelineBytes);

// Says, for a warp that has passed the wait for its reads, that they are done.
__device__ __forceinline__ void arrive_warp(Mbarrier& empty) {
    if (threadIdx.x % kWarpThreads == 0) {
        empty.arrive();
    }
}

}  // namespace xstage
