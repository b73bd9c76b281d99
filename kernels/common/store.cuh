// Stores to memory that another processor may own: one-instruction wrappers, named for what they do.
#pragma once

#include "common/types.cuh"

namespace xstage {

// 16-byte store. Returns when the store is accepted, long before it is visible to the owner.
__device__ __forceinline__ void store_v4(void* address, uint4 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

// Writes a word of shared memory and reads it back, behind this warp's earlier stores in the SM's load/store
// unit: the value returns when that unit has passed those stores on. Without it a warp is past its stores while
// up to about 5 KB of an SM still queue in the unit, and the stall (12 us at 400 MB/s an SM) falls on whatever
// shared memory access comes next. A read alone overtakes the last of the stores; a write does not.
// `word`: one a thread. Costs a few tens of ns when nothing stalls.
__device__ __forceinline__ u32 round_trip_behind_stores(void* word, u32 value) {
    const u32 address = static_cast<u32>(__cvta_generic_to_shared(word));
    asm volatile("st.volatile.shared.u32 [%1], %0;\n\tld.volatile.shared.u32 %0, [%1];"
                 : "+r"(value)
                 : "r"(address)
                 : "memory");
    return value;
}

#if __CUDA_ARCH__ >= 900

// Bulk copy of `bytes` (a multiple of 16) from shared to global memory by the copy engine of the SM.
__device__ __forceinline__ void bulk_store(void* address, const void* shared, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(address),
                 "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until the sources of all committed copies have been read: their shared memory may be reused.
// It says nothing of arrival.
__device__ __forceinline__ void bulk_wait_sources_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Waits until all committed copies are complete.
__device__ __forceinline__ void bulk_wait_complete() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders what this thread has acquired of global memory before the copies that it queues next.
__device__ __forceinline__ void fence_global_for_bulk() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Bulk copy of `bytes` (a multiple of 16) from global to shared memory; its bytes arrive at the barrier at `full`.
__device__ __forceinline__ void bulk_load(void* shared, const void* address, u32 bytes, u32 full) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "l"(address), "r"(bytes), "r"(full)
        : "memory");
}

// Orders this thread's earlier writes of shared memory before later bulk copies that read it.
__device__ __forceinline__ void fence_shared_for_bulk() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

}  // namespace xstage
