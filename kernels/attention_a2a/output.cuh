// From the registers of a consumer warpgroup to the ranks that own the tile's tokens, by way of shared memory.
//
// A warpgroup's 64 rows are staged as tiles of 128-byte rows, 128-byte swizzled, which both the writing threads and
// the tensor copies get at without bank conflicts.
#pragma once

#include "attention_a2a/arguments.cuh"
#include "attention_a2a/pipeline.cuh"
#include "attention_a2a/softmax.cuh"
#include "attention_a2a/tile_spans.cuh"
#include "common/store.cuh"

namespace xstage {

class TileWriter {
public:
    __device__ TileWriter(Pipeline& pipeline, char* shared, u32 consumer, const AttentionArguments& arguments)
        : pipeline_(pipeline),
          staging_(shared + kStagingOffset + consumer * kWarpgroupTileBytes),
          consumer_(consumer),
          epoch_slot_(arguments.epochs == nullptr ? 0 : *static_cast<volatile u32*>(&arguments.epochs->epoch) & 1) {}

    __device__ u32 barrier() const { return kWarpgroupBarrier + consumer_; }

    // `index`: of the tile on this CTA.
    __device__ __forceinline__ void write(const AttentionArguments& arguments, u32 rows_per_rank, Tile tile, u32 index,
                                          const float (&output)[kOutputs], TileSpans& spans) {
        const char* slot = staging_ + (kStagingSlots == 2 ? index % 2 * (kConsumers * kWarpgroupTileBytes) : 0);
        spans.end(kMainloopSpan, index);
        wait_for_slot();
        spans.end(kStagingStallSpan, index);
        stage(slot, output);
        const u32 first_row = tile.block * kBlockM + consumer_ * kWarpgroupRows;
        if (kStoreFlavour == StoreFlavour::register_stores) {
            __syncwarp();  // a warp stores the rows that it staged
            store_rows(arguments, rows_per_rank, tile.head, first_row, slot);
            spans.wait_for_stores(barrier());
        } else {
            fence_shared_for_bulk();
            named_barrier_sync(barrier(), kWarpgroupThreads);
            store_box_or_rows(arguments, rows_per_rank, tile.head, first_row, slot);
        }
        spans.end(SpanKind::issue, index);
        release_slot();
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
    }

private:
    __device__ static bool elected() { return threadIdx.x % kWarpgroupThreads == 0; }

    // Until nobody reads what the staging slot held before.
    __device__ __forceinline__ void wait_for_slot() const {
        if (kStaging == Staging::alias_value) {
            named_barrier_sync(kConsumersBarrier, kConsumerThreads);  // all are done with V
        } else if (kStaging == Staging::alias_query) {
            named_barrier_sync(barrier(), kWarpgroupThreads);  // all warps are done with these rows of Q
        } else if (kStoreFlavour == StoreFlavour::tensor_copies) {
            if (elected()) {
                bulk_wait_sources_read_but<kStagingSlots - 1>();
            }
            named_barrier_sync(barrier(), kWarpgroupThreads);
        } else {
            __syncwarp();
        }
    }

    // Hands the slot back to the producer where it is a part of Q's or V's buffer.
    __device__ __forceinline__ void release_slot() const {
        if (kStaging == Staging::dedicated) {
            return;
        }
        fence_shared_for_bulk();  // the slot was read and written by threads, and copies write it next
        __syncwarp();
        arrive_warp(kStaging == Staging::alias_query ? pipeline_.query_empty : pipeline_.staging_empty);
    }

    // Place of 16 bytes of a row.
    static __device__ __forceinline__ u32 staged(u32 slot, u32 row, u32 vector) {
        constexpr u32 kVectors = kSwizzleRowBytes / 16;
        return slot + vector / kVectors * (kWarpgroupRows * kSwizzleRowBytes) + row * kSwizzleRowBytes +
               ((vector % kVectors) ^ (row % 8)) * 16;
    }

    __device__ __forceinline__ void stage(const char* slot, const float (&output)[kOutputs]) const {
        const u32 lane = threadIdx.x % kWarpThreads;
        const u32 row = first_row_of_warp() + lane % 16;
#pragma unroll
        for (u32 pair = 0; pair < kHeadDim / 16; ++pair) {
            const float* o = &output[8 * pair];
            store_matrices(staged(shared_address(slot), row, 2 * pair + lane / 16),
                           {pack_bf16(o[0], o[1]), pack_bf16(o[2], o[3]), pack_bf16(o[4], o[5]), pack_bf16(o[6], o[7])});
        }
    }

    // Whole rows: 16 lanes (8 at head_dim 64) store one. The row's rank changes where the tile straddles.
    __device__ __forceinline__ void store_rows(const AttentionArguments& arguments, u32 rows_per_rank, u32 head,
                                               u32 first_row, const char* slot) const {
        constexpr u32 kVectors = kRowBytes / 16;
        constexpr u32 kRowsAtOnce = kWarpThreads / kVectors;
        constexpr u32 kSteps = 16 / kRowsAtOnce;
        const u32 lane = threadIdx.x % kWarpThreads;
        const u32 vector = lane % kVectors;
        const u32 row = first_row_of_warp() + lane / kVectors;
        uint4 values[kSteps];
#pragma unroll
        for (u32 step = 0; step < kSteps; ++step) {
            values[step] = load_shared_v4(staged(shared_address(slot), row + step * kRowsAtOnce, vector));
        }
        u32 token = first_row + row;
        u32 rank = token / rows_per_rank;
        u32 row_of_rank = token - rank * rows_per_rank;
        const u64 offset = epoch_slot_ * arguments.epoch_bytes + head * kRowBytes + vector * 16;
#pragma unroll
        for (u32 step = 0; step < kSteps; ++step) {
            if (token < arguments.tokens) {
                store_v4(arguments.destination[rank] + offset + static_cast<u64>(row_of_rank) * arguments.token_bytes,
                         values[step]);
            }
            token += kRowsAtOnce;
            row_of_rank += kRowsAtOnce;
            while (row_of_rank >= rows_per_rank) {
                row_of_rank -= rows_per_rank;
                ++rank;
            }
        }
    }

    // One copy, which leaves out rows behind the last of the rank's tensor. Rows of two ranks are stored by the threads:
    // a copy that begins before a tensor's first row (a negative coordinate) is an illegal instruction on H200.
    __device__ __forceinline__ void store_box_or_rows(const AttentionArguments& arguments, u32 rows_per_rank, u32 head,
                                                      u32 first_row, const char* slot) const {
        const u32 rank = first_row / rows_per_rank;
        const u32 row_of_rank = first_row - rank * rows_per_rank;
        const u32 rows = min(kWarpgroupRows, arguments.tokens - min(first_row, arguments.tokens));
        if (row_of_rank + rows > rows_per_rank) {
            store_rows(arguments, rows_per_rank, head, first_row, slot);
        } else if (elected() && rows > 0) {
            store_box(arguments.output[rank], slot, 0, static_cast<int>(row_of_rank), 0, static_cast<int>(head),
                      static_cast<int>(epoch_slot_));
            bulk_commit();
            if (kStaging != Staging::dedicated) {
                bulk_wait_sources_read();
            }
        }
    }

    static __device__ __forceinline__ u32 first_row_of_warp() {
        return threadIdx.x % kWarpgroupThreads / kWarpThreads * 16;
    }

    Pipeline& pipeline_;
    const char* staging_;
    u32 consumer_;
    u32 epoch_slot_;
};

}  // namespace xstage
