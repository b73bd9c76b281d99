// Words by which one processor tells another that data are there.
#pragma once

#include "common/types.cuh"

namespace xstage {

// Orders all that this thread wrote, or saw written through barriers, before what it writes next, for every
// processor of the system. Waits for outstanding remote stores: never inside a span.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// What this thread read and wrote before, and what it reads and writes after, for all of this GPU.
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Behind a fence as good as a release, and one fence serves many words.
__device__ __forceinline__ void store_relaxed_system(u32* word, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ void store_release_system(u32* word, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ u32 load_acquire_system(const u32* word) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

// Adds to a word of this GPU and returns what it held before; what was written before is seen by whoever reads
// the sum.
__device__ __forceinline__ u32 fetch_add_gpu(u32* word, u32 value) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

// Without order: for use between fences.
__device__ __forceinline__ u32 fetch_add_relaxed_gpu(u32* word, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

__device__ __forceinline__ u32 load_relaxed_gpu(const u32* word) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void store_relaxed_gpu(u32* word, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// Writes `value` where the word holds `expected`; returns what it held. Without order.
__device__ __forceinline__ u32 compare_and_swap_gpu(u32* word, u32 expected, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(word), "r"(expected), "r"(value)
                 : "memory");
    return before;
}

}  // namespace xstage
