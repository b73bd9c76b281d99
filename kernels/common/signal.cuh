// Words by which one processor tells another that data are there.
#pragma once

#include "common/types.cuh"

namespace xstage {

// Orders all that this thread wrote, or saw written through barriers, before what it writes next, for every
// processor of the system. Waits for outstanding remote stores: never inside a span.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

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

}  // namespace xstage
