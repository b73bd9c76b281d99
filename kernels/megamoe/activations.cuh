// SwiGLU.
#pragma once

#include "common/warpgroup.cuh"

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

}  // namespace xstage::megamoe
