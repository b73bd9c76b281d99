// Shared memory of another CTA of the cluster.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace xstage {

// All threads of the cluster that have not ended.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// Where CTA `rank` has what this CTA has at `address` of its shared memory.
__device__ __forceinline__ u32 address_in_cluster(u32 address, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// 16 bytes, which arrive later and then count at a barrier of the same CTA. Addresses in the cluster.
__device__ __forceinline__ void store_async(u32 address, FloatVector value, u32 barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
        ::"r"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
        : "memory");
}

// At a barrier of another CTA, `barrier` in the cluster, behind all that this thread has read and written.
__device__ __forceinline__ void arrive_in_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// For this CTA's barrier, at which other CTAs' stores count and their threads arrive.
__device__ __forceinline__ void wait_in_cluster(Mbarrier& barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(barrier.address()),
        "r"(parity)
        : "memory");
}

}  // namespace xstage
