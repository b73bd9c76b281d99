// From the registers of a consumer warpgroup to the ranks that own the tile's tokens, by way of shared memory.
#pragma once

#include "attention_a2a/pipeline.cuh"
#include "attention_a2a/rows.cuh"
#include "attention_a2a/softmax.cuh"
#include "attention_a2a/tile_spans.cuh"
#include "common/timer.cuh"

namespace xstage {

class TileWriter {
public:
    __device__ TileWriter(Pipeline& pipeline, char* shared, u32 consumer)
        : pipeline_(pipeline), shared_(shared), consumer_(consumer), finisher_(finisher_of(consumer)) {}

    __device__ u32 barrier() const { return kWarpgroupBarrier + consumer_; }

    // When a tile's Q-loop begins.
    __device__ __forceinline__ void begin() const {
        if (kPaced && finishes(consumer_) && elected()) {
            pipeline_.loop_begin_cycles[finisher_] = static_cast<u32>(sm_clock());
        }
    }

    // `index`: of the tile on this CTA.
    __device__ __forceinline__ void write(const AttentionArguments& arguments, u32 rows_per_rank, Tile tile, u32 index,
                                          const float (&output)[kOutputs], TileSpans& spans) {
        const char* slot = staging_slot(shared_, consumer_, index);
        u32 loop_cycles = 0;
        if (kPaced && elected()) {
            loop_cycles = static_cast<u32>(sm_clock()) - pipeline_.loop_begin_cycles[finisher_];
        }
        spans.end(kMainloopSpan, index);
        wait_for_slot(index);
        spans.end(kStagingStallSpan, index);
        stage(slot, output);
        const u32 first_row = first_row_to_store(tile, consumer_, pipeline_.output_slot);
        if constexpr (kPaced) {
            if (elected()) {
                pipeline_.staged_tile[finisher_][index % kStagingSlots] = {tile, loop_cycles};
            }
            __syncwarp();
            arrive_warp(pipeline_.staged_full[finisher_][index % kStagingSlots]);
        } else if constexpr (kStoreFlavour == StoreFlavour::register_stores) {
            __syncwarp();  // a warp stores the rows that it staged
            store_rows(arguments, rows_per_rank, tile.head, first_row, slot);
            spans.wait_for_stores(barrier());
        } else {
            fence_shared_for_bulk();
            named_barrier_sync(barrier(), kWarpgroupThreads);
            store_box_or_rows(arguments, rows_per_rank, tile.head, first_row, slot);
        }
        spans.end(SpanKind::issue, index);
    }

    // After the last tile. Copies still read the staging buffer, which must outlive them; where the epoch is completed
    // next, this warpgroup's stores are seen to be complete.
    __device__ void finish(bool complete) const {
        if (kStoreFlavour == StoreFlavour::tensor_copies && elected()) {
            if (complete) {
                bulk_wait_complete();
            } else {
                bulk_wait_sources_read();
            }
        }
        __syncwarp();
    }

    // Of `tiles` tiles of this CTA the last one's stores have been issued, whoever issues them: rows that
    // wait in registers when the slot is empty leave at once in the last round, and before it on their way.
    __device__ void wait_until_issued(u32 tiles) const {
        if (kPaced && tiles > 0) {
            const u32 last = tiles - 1;
            pipeline_.staged_empty[finisher_][last % kStagingSlots].wait(last / kStagingSlots % 2);
        }
    }

private:
    __device__ static bool elected() { return threadIdx.x % kWarpgroupThreads == 0; }

    // Until nobody reads what the staging slot held before.
    __device__ __forceinline__ void wait_for_slot(u32 index) const {
        if constexpr (kStaging == Staging::alias_value) {
            named_barrier_sync(kConsumersBarrier, kConsumerThreads);  // all are done with V
        } else if constexpr (kStaging == Staging::alias_query) {
            named_barrier_sync(barrier(), kWarpgroupThreads);  // all warps are done with these rows of Q
        } else if constexpr (kPaced) {
            pipeline_.staged_empty[finisher_][index % kStagingSlots].wait((index / kStagingSlots + 1) % 2);
            __syncwarp();  // behind each lane's own wait
        } else {
            if (elected()) {
                bulk_wait_sources_read_but<kStagingSlots - 1>();
            }
            named_barrier_sync(barrier(), kWarpgroupThreads);
        }
    }

    // Hands the slot back to the producer where it is a part of Q's or V's buffer.
    __device__ __forceinline__ void release_slot() const {
        if constexpr (kStaging != Staging::dedicated) {
            fence_shared_for_bulk();  // the slot was read and written by threads, and copies write it next
            __syncwarp();
            arrive_warp(kStaging == Staging::alias_query ? pipeline_.query_empty : pipeline_.alias_empty);
        }
    }

    __device__ __forceinline__ void stage(const char* slot, const float (&output)[kOutputs]) const {
        const u32 lane = threadIdx.x % kWarpThreads;
        const u32 row = first_row_of_warp() + lane % 16;
#pragma unroll
        for (u32 pair = 0; pair < kHeadDim / 16; ++pair) {
            const float* o = &output[8 * pair];
            const u32 matrices[4] = {pack_bf16(o[0], o[1]), pack_bf16(o[2], o[3]), pack_bf16(o[4], o[5]),
                                     pack_bf16(o[6], o[7])};
            store_matrices(staged_vector(slot, row, 2 * pair + lane / 16), matrices);
        }
    }

    // A warp's 16 rows, by itself.
    __device__ __forceinline__ void store_rows(const AttentionArguments& arguments, u32 rows_per_rank, u32 head,
                                               u32 first_row, const char* slot) const {
        constexpr u32 kSteps = 16 / kRowsAtOnce;
        const u32 lane = threadIdx.x % kWarpThreads;
        const u32 vector = lane % kRowVectors;
        const u32 row = first_row_of_warp() + lane / kRowVectors;
        uint4 values[kSteps];
#pragma unroll
        for (u32 step = 0; step < kSteps; ++step) {
            values[step] = load_shared_v4(staged_vector(slot, row + step * kRowsAtOnce, vector));
        }
        // Before the stores: a fence behind them could wait for them, and the next copies for it.
        release_slot();
        OutputRow place(arguments, rows_per_rank, pipeline_.output_slot, head, first_row + row, vector);
#pragma unroll
        for (u32 step = 0; step < kSteps; ++step) {
            place.store(values[step]);
            place.advance(kRowsAtOnce);
        }
        __syncwarp();  // behind branches of each lane's own
    }

    // One copy, which leaves out rows behind the last of the rank's tensor. Rows of two ranks are stored by the
    // threads: copies with a negative coordinate, for what begins before a rank's first row, ended as illegal
    // instructions on an H200.
    __device__ __forceinline__ void store_box_or_rows(const AttentionArguments& arguments, u32 rows_per_rank, u32 head,
                                                      u32 first_row, const char* slot) const {
        const u32 rank = first_row / rows_per_rank;
        const u32 row_of_rank = first_row - rank * rows_per_rank;
        const u32 rows = min(kWarpgroupRows, arguments.tokens - min(first_row, arguments.tokens));
        const bool of_one_rank = row_of_rank + rows <= rows_per_rank;
        if (!of_one_rank) {
            store_rows(arguments, rows_per_rank, head, first_row, slot);
        }
        if (elected()) {
            if (of_one_rank && rows > 0) {
                store_box(arguments.output[rank], slot, 0, static_cast<int>(row_of_rank), 0, static_cast<int>(head),
                          static_cast<int>(pipeline_.output_slot));
            }
            bulk_commit();  // of every tile, if of nothing: the wait for a slot counts groups
            if (kStaging != Staging::dedicated) {
                bulk_wait_sources_read();
            }
        }
        if (of_one_rank) {
            release_slot();
        }
    }

    static __device__ __forceinline__ u32 first_row_of_warp() {
        return threadIdx.x % kWarpgroupThreads / kWarpThreads * 16;
    }

    Pipeline& pipeline_;
    char* shared_;
    u32 consumer_;
    u32 finisher_;
};

}  // namespace xstage
