// What warps and warpgroups of one CTA share: registers, named barriers, matrices staged for others to read.
#pragma once

#include "common/types.cuh"

namespace xstage {

constexpr u32 kWarpThreads = 32;
constexpr u32 kWarpgroupThreads = 128;

// Gives registers back to the SM's pool. All warps of a warpgroup; a multiple of 8.
template <u32 kRegisters>
__device__ __forceinline__ void release_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Takes registers from the pool, and waits until it has them. All warps of a warpgroup; a multiple of 8.
template <u32 kRegisters>
__device__ __forceinline__ void claim_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A value that all lanes of the warp hold alike, so that the compiler keeps it in a uniform register.
__device__ __forceinline__ u32 warp_uniform(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }

// Waits until `threads` threads have come to the barrier, those that only announced themselves included.
__device__ __forceinline__ void named_barrier_sync(u32 barrier, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Announces this warp at the barrier, without waiting.
__device__ __forceinline__ void named_barrier_arrive(u32 barrier, u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Stores four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8, and holds
// elements 2 * (i % 4) and the next of row i / 4 of every matrix.
__device__ __forceinline__ void store_matrices(u32 row_address, const u32 (&matrices)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
                 "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
}

__device__ __forceinline__ uint4 load_shared_v4(u32 address) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

__device__ __forceinline__ FloatVector load_shared_floats(u32 address) {
    FloatVector value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

// Two floats rounded to bf16, the first in the low half.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// 2 to the power of x, 0 for -infinity.
__device__ __forceinline__ float exp2_approximate(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

}  // namespace xstage
