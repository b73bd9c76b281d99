// Rings of buffers, guarded by barriers with phases.
#pragma once

#include "common/types.cuh"

namespace xstage {

// Place in a ring of buffers, and the parity of its current lap.
template <u32 kStages>
struct RingPosition {
    u32 stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

}  // namespace xstage
