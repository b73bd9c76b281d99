// The publisher: stores both consumers' Linear-1 parts, with their scales if there are any, and raises the row's
// counter when they are there.
//
// A warp of its own, of which one thread stores and announces: it stores nothing remotely, so neither its wait for its
// copies nor the release behind them waits for the path of Combine to drain (row_counter.cuh). While there is nothing
// to store the whole warp pulls tokens.
#pragma once

#include "common/store.cuh"
#include "megamoe/dispatch.cuh"

namespace xstage::megamoe {

__device__ __forceinline__ void store_activations(const MoeArguments& arguments, const QueuedTile& tile, u32 consumer,
                                                  const char* slot) {
    const int row = static_cast<int>(pool_row_of_part(tile, consumer));
    const u32 column = column_of_part(tile, consumer, kBlockN / 2);
#pragma unroll
    for (u32 chunk = 0; chunk < kActivationChunks; ++chunk) {
        store_box(arguments.swiglu, slot + chunk * kChunkBytes, static_cast<int>(column + chunk * kBlockK), row, 0, 0,
                  0);
    }
    if (kScaled) {
        bulk_store(arguments.activation_scales + static_cast<u64>(tile.n_tile) * arguments.pool_rows + row,
                   slot + kActivationScalesOffset, kPartScalesBytes);
    }
}

// One thread stores and announces what both consumers have staged of a tile.
__device__ __forceinline__ void publish_tile(const MoeArguments& arguments, Pipeline& pipeline, char* shared,
                                             const QueuedTile& tile, const RingPosition<kStagingSlots>& at) {
    const bool first = tile.layer == Layer::linear1;
    for (u32 consumer = 0; consumer < kConsumers; ++consumer) {
        pipeline.staged_full[consumer][at.stage].wait(at.parity);
        // Of a shared tile the first consumer's slot has all activations.
        if (first && rows_of_part(tile, consumer) != 0 && !(is_shared(tile) && consumer != 0)) {
            store_activations(arguments, tile, consumer, staging_slot(shared, consumer, at.stage));
        }
    }
    if (first) {
        bulk_commit();
        bulk_wait_sources_read();
    }
    for (u32 consumer = 0; consumer < kConsumers; ++consumer) {
        pipeline.staged_empty[consumer][at.stage].arrive();
    }
    if (first) {
        bulk_wait_complete();
        if (tile.row != arguments.withheld_row) {
            raise_counter(&arguments.counters[tile.row]);
        }
    }
}

// For all lanes alike.
__device__ __forceinline__ bool is_staged(const Pipeline& pipeline, const RingPosition<kStagingSlots>& at) {
    bool staged = true;
    for (u32 consumer = 0; consumer < kConsumers; ++consumer) {
        staged &= pipeline.staged_full[consumer][at.stage].is_complete(at.parity);
    }
    return __all_sync(kWholeWarp, staged);
}

__device__ void publish(const MoeArguments& arguments, Pipeline& pipeline, char* shared) {
    TileQueue queue(pipeline);
    Dispatch dispatch(arguments, pipeline, shared);
    RingPosition<kStagingSlots> at;
    QueuedTile tile;
    for (;;) {
        while (!dispatch.is_done() && !queue.has_next()) {
            dispatch.step();
        }
        if (!queue.next(tile)) {
            break;
        }
        while (!dispatch.is_done() && !is_staged(pipeline, at)) {
            dispatch.step();
        }
        if (threadIdx.x % kWarpThreads == 0) {
            publish_tile(arguments, pipeline, shared, tile, at);
        }
        __syncwarp();
        at.advance();
    }
    while (!dispatch.is_done()) {
        dispatch.step();
    }
}

}  // namespace xstage::megamoe
