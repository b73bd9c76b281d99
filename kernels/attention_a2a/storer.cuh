// A storer warp: takes finished rows from one consumer's own staging buffer and stores them while the consumer is in
// its next Q-loop, spread over it.
//
// Stores that leave faster than the path drains fill the memory system's queues, and then the loads of K and V wait
// behind them: on the host path of an H200 a burst of 132 tiles (3.8 MB, 72 us of PCIe) lengthened the next Q-loop by
// 65 us. So a tile's stores are spread over as long as the Q-loop that made it. The slot has to be free a little before
// that, or the next tile would wait for it: so the last rows wait in registers. In the last round of tiles no Q-loop
// follows, and nothing is gained by waiting.
#pragma once

#include "attention_a2a/pipeline.cuh"
#include "attention_a2a/rows.cuh"
#include "attention_a2a/team.cuh"
#include "common/timer.cuh"

namespace xstage {

class Storer {
public:
    __device__ Storer(Pipeline& pipeline, char* shared, u32 finisher)
        : pipeline_(pipeline), shared_(shared), finisher_(finisher), consumer_(finishing_consumer(finisher)) {}

    __device__ __forceinline__ void run(const AttentionArguments& arguments, const TileGrid& grid) const {
        const u32 tiles = tiles_of_team(arguments, grid);
        for (u32 index = 0; index < tiles; ++index) {
            const u32 slot = index % kStagingSlots;
            pipeline_.staged_full[finisher_][slot].wait(index / kStagingSlots % 2);
            const bool last_round = (index + 1) * teams(arguments) >= grid.tiles();
            store_tile(arguments, grid.rows_per_rank(), index, pipeline_.staged_tile[finisher_][slot], last_round);
        }
    }

private:
    static constexpr u32 kSteps = kWarpgroupRows / kRowsAtOnce;
    // Stores of rows in registers: most that none of the built tiles spills with. The slot is free for a tenth of the
    // Q-loop at head dim 128, for a fifth at 64.
    static constexpr u32 kHeldSteps = 3;
    static_assert(kSteps > kHeldSteps);

    __device__ __forceinline__ void store_tile(const AttentionArguments& arguments, u32 rows_per_rank, u32 index,
                                               StagedTile staged, bool at_once) const {
        const char* slot = staging_slot(shared_, consumer_, index);
        const u32 lane = threadIdx.x % kWarpThreads;
        const u32 vector = lane % kRowVectors;
        u32 row = lane / kRowVectors;
        OutputRow output(arguments, rows_per_rank, pipeline_.output_slot, staged.tile.head,
                         first_row_to_store(staged.tile, consumer_, pipeline_.output_slot) + row, vector);
        const u32 cycles_between_stores = at_once ? 0 : staged.loop_cycles / kSteps;
        u64 next = sm_clock();
        const auto store = [&](uint4 value) {
            spin_until_cycle(next);
            output.store(value);
            output.advance(kRowsAtOnce);
            next += cycles_between_stores;
        };
#pragma unroll 1
        for (u32 step = 0; step < kSteps - kHeldSteps; ++step, row += kRowsAtOnce) {
            store(load_shared_v4(staged_vector(slot, row, vector)));
        }
        uint4 held[kHeldSteps];
#pragma unroll
        for (u32 step = 0; step < kHeldSteps; ++step, row += kRowsAtOnce) {
            held[step] = load_shared_v4(staged_vector(slot, row, vector));
        }
        __syncwarp();
        arrive_warp(pipeline_.staged_empty[finisher_][index % kStagingSlots]);
#pragma unroll
        for (u32 step = 0; step < kHeldSteps; ++step) {
            store(held[step]);
        }
        __syncwarp();  // behind branches of each lane's own
    }

    Pipeline& pipeline_;
    char* shared_;
    u32 finisher_;
    u32 consumer_;
};

}  // namespace xstage
