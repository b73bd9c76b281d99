// A storer warp: takes finished rows from one consumer's own staging buffer and stores them while the consumer is in
// its next Q-loop, spread over it.
//
// Stores that leave faster than the path drains fill the memory system's queues, and then the loads of K and V wait
// behind them: on the host path of an H200 a burst of 132 tiles (3.8 MB, 72 us of PCIe) lengthened the next Q-loop by
// 65 us. So a tile's stores are spread over as long as the Q-loop that made it; the slot is free a step before that, or
// the next tile would wait for it. In the last round of tiles no Q-loop follows, and nothing is gained by waiting.
#pragma once

#include "attention_a2a/pipeline.cuh"
#include "attention_a2a/rows.cuh"
#include "common/timer.cuh"

namespace xstage {

class Storer {
public:
    __device__ Storer(Pipeline& pipeline, char* shared, u32 consumer, const AttentionArguments& arguments)
        : pipeline_(pipeline), shared_(shared), consumer_(consumer), epoch_slot_(epoch_slot(arguments)) {}

    __device__ __forceinline__ void run(const AttentionArguments& arguments, const TileGrid& grid) const {
        u64 loop_begin = sm_clock();
        u32 index = 0;
        for (u32 place = blockIdx.x; place < grid.tiles(); place += gridDim.x, ++index) {
            pipeline_.staged_full[consumer_][index % kStagingSlots].wait(index / kStagingSlots % 2);
            const u64 loop_end = sm_clock();
            const bool last_round = (index + 1) * gridDim.x >= grid.tiles();
            store_tile(arguments, grid.rows_per_rank(), index, last_round ? 0 : pace(loop_end - loop_begin));
            loop_begin = loop_end;
            __syncwarp();
            arrive_warp(pipeline_.staged_empty[consumer_][index % kStagingSlots]);
        }
    }

private:
    static constexpr u32 kSteps = kWarpgroupRows / kRowsAtOnce;

    // Cycles from store to store.
    static __device__ __forceinline__ u32 pace(u64 loop_cycles) { return static_cast<u32>(loop_cycles / kSteps); }

    __device__ __forceinline__ void store_tile(const AttentionArguments& arguments, u32 rows_per_rank, u32 index,
                                               u32 pace_cycles) const {
        const Tile tile = pipeline_.staged_tile[consumer_][index % kStagingSlots];
        const char* slot = staging_slot(shared_, consumer_, index);
        const u32 lane = threadIdx.x % kWarpThreads;
        const u32 vector = lane % kRowVectors;
        u32 row = lane / kRowVectors;
        OutputRow output(arguments, rows_per_rank, epoch_slot_, tile.head,
                         tile.block * kBlockM + consumer_ * kWarpgroupRows + row, vector);
        u64 next = sm_clock();
#pragma unroll 1
        for (u32 step = 0; step < kSteps; ++step) {
            spin_until_cycle(next);
            output.store(load_shared_v4(staged_vector(slot, row, vector)));
            output.advance(kRowsAtOnce);
            row += kRowsAtOnce;
            next += pace_cycles;
        }
    }

    Pipeline& pipeline_;
    char* shared_;
    u32 consumer_;
    u32 epoch_slot_;
};

}  // namespace xstage
