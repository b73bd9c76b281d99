// Accesses of scales and of e4m3: one-instruction wrappers.
#pragma once

#include "common/types.cuh"

namespace xstage::megamoe {

__device__ __forceinline__ float load_shared_float(u32 address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void store_shared_float(u32 address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared_u16(u32 address, u16 value) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

// Of memory that no one writes while the kernel runs. Not moved behind the waits that follow it.
__device__ __forceinline__ float load_constant(const float* address) {
    float value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(address));
    return value;
}

// Two floats rounded to e4m3, the first in the low half; what is beyond the largest becomes the largest.
__device__ __forceinline__ u16 pack_e4m3(float low, float high) {
    u16 packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

}  // namespace xstage::megamoe
