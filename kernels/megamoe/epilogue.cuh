// A consumer's epilogue: the activation of Linear-1, conversion, and the way to a staging slot.
#pragma once

#include "common/store.cuh"
#include "megamoe/products.cuh"
#include "megamoe/role_spans.cuh"

#if FORMAT == 0
#include "megamoe/bf16_activations.cuh"
#else
#include "megamoe/e4m3_activations.cuh"
#endif

namespace xstage::megamoe {

// So many of a thread's sums, of all columns from the part's first on.
template <u32 kSums>
__device__ __forceinline__ void stage_rows(const char* slot, const Sums& sums) {
    const MatrixPlace place(warpgroup_thread());
#pragma unroll
    for (u32 pair = 0; pair < kSums / 8; ++pair) {
        u32 matrices[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            matrices[i] = pack_bf16(sums.at(8 * pair + 2 * i), sums.at(8 * pair + 2 * i + 1));
        }
        store_matrices(staged_vector(slot, place.row, 2 * pair + place.vector), matrices);
    }
}

__device__ void consume(const MoeArguments& arguments, Pipeline& pipeline, char* shared, u32 consumer) {
    TileQueue queue(pipeline);
    Products products(arguments, pipeline, shared, consumer);
    RoleSpans spans(shared, consumer, arguments);
    spans.open();
    QueuedTile tile;
    while (queue.next(tile)) {
        Sums sums;
        products.wait();
        spans.end(kDependencyWaitSpan, tile.layer);
        if (warpgroup_thread() == 0) {
            pipeline.loop_begin[consumer] = static_cast<u32>(sm_clock());
        }
        products.run(tile, sums);
        if (warpgroup_thread() == 0) {
            pipeline.loop_cycles[consumer][layer_index(tile.layer)] =
                static_cast<u32>(sm_clock()) - pipeline.loop_begin[consumer];
        }
        spans.end(kMainloopSpan, tile.layer);
        const RingPosition<kStagingSlots> at = queue.slot();
        pipeline.staged_empty[consumer][at.stage].wait(at.parity ^ 1);
        spans.end(kStagingStallSpan, tile.layer);
        if (rows_of_part(tile, consumer) != 0) {
            const char* slot = staging_slot(shared, consumer, at.stage);
            if (tile.layer == Layer::linear1) {
                stage_activations(shared, at.stage, tile, consumer, sums);
            } else if (is_shared(tile)) {
                stage_rows<kProductFloats>(slot, sums);
            } else {
                stage_rows<Sums::kCount>(slot, sums);
            }
            fence_shared_for_bulk();
        }
        arrive_warp(pipeline.staged_full[consumer][at.stage]);
        spans.end_tile();
        spans.begin();
    }
    spans.close();
}

}  // namespace xstage::megamoe
