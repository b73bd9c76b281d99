// A consumer's epilogue: the activation of Linear-1, conversion, and the way to a staging slot.
#pragma once

#include "common/store.cuh"
#include "megamoe/products.cuh"

namespace xstage::megamoe {

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float reciprocal_approximate(float x) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}

// gate * sigmoid(gate) * up. 0 for a gate so low that its exponential is infinite.
__device__ __forceinline__ float swiglu(float gate, float up) {
    return gate * reciprocal_approximate(1.0f + exp2_approximate(-gate * kLog2E)) * up;
}

// Where the lane's address of a stored matrix lies: row of the part, and a 16-byte vector of two.
struct MatrixPlace {
    u32 row;
    u32 vector;

    __device__ MatrixPlace()
        : row(threadIdx.x % kWarpgroupThreads / kWarpThreads * 16 + threadIdx.x % 16),
          vector(threadIdx.x % kWarpThreads / 16) {}
};

// bf16 of SwiGLU: the first half of a part's columns are gates, the second what they gate.
__device__ __forceinline__ void stage_activations(const char* slot, const Sums& sums) {
    constexpr u32 kHalf = Sums::kCount / 2;
    const MatrixPlace place;
#pragma unroll
    for (u32 pair = 0; pair < kHalf / 8; ++pair) {
        u32 matrices[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 at = 8 * pair + 2 * i;
            matrices[i] = pack_bf16(swiglu(sums.at(at), sums.at(at + kHalf)),
                                    swiglu(sums.at(at + 1), sums.at(at + 1 + kHalf)));
        }
        store_matrices(staged_activation(slot, place.row, 2 * pair + place.vector), matrices);
    }
}

__device__ __forceinline__ void stage_rows(const char* slot, const Sums& sums) {
    const MatrixPlace place;
#pragma unroll
    for (u32 pair = 0; pair < Sums::kCount / 8; ++pair) {
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
    RingPosition<kStagingSlots> at;
    RoleSpans spans(shared, consumer, arguments);
    spans.open();
    QueuedTile tile;
    while (queue.next(tile)) {
        Sums sums;
        const u32 begin_cycles = static_cast<u32>(sm_clock());
        products.run(tile, sums, spans);
        if (threadIdx.x % kWarpgroupThreads == 0) {
            pipeline.loop_cycles[consumer][layer_index(tile.layer)] = static_cast<u32>(sm_clock()) - begin_cycles;
        }
        spans.end(kMainloopSpan, tile.layer);
        pipeline.staged_empty[consumer][at.stage].wait(at.parity ^ 1);
        spans.end(kStagingStallSpan, tile.layer);
        if (rows_of_part(tile, consumer) != 0) {
            const char* slot = staging_slot(shared, consumer, at.stage);
            if (tile.layer == Layer::linear1) {
                stage_activations(slot, sums);
            } else {
                stage_rows(slot, sums);
            }
            fence_shared_for_bulk();
        }
        arrive_warp(pipeline.staged_full[consumer][at.stage]);
        at.advance();
        spans.end_tile();
        spans.begin();
    }
    spans.close();
}

}  // namespace xstage::megamoe
