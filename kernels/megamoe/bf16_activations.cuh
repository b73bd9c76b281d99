// What Linear-1 leaves in bf16.
#pragma once

#include "megamoe/activations.cuh"
#include "megamoe/operands.cuh"

namespace xstage::megamoe {

// bf16 of SwiGLU: the first half of a part's columns are gates, the second what they gate.
__device__ __forceinline__ void stage_activations(char* shared, u32 stage, const QueuedTile&, u32 consumer,
                                                  const Sums& sums) {
    const char* slot = staging_slot(shared, consumer, stage);
    constexpr u32 kHalf = Sums::kCount / 2;
    const MatrixPlace place(warpgroup_thread());
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

}  // namespace xstage::megamoe
