// Tensor copies between global and shared memory by the SM's copy engine.
//
// Coordinates may lie outside of the tensor, also below zero: what is read there is zero, what would be written
// there is not.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace xstage {

// A CUtensorMap, made by the host. Lives in the kernel's parameters (__grid_constant__).
struct alignas(64) TensorMap {
    u64 opaque[16];
};
static_assert(sizeof(TensorMap) == 128);

__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Queues the copy of one box into shared memory; its bytes arrive at `full`.
__device__ __forceinline__ void load_box(void* shared, const TensorMap& map, Mbarrier& full, int c0, int c1, int c2,
                                         int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(full.address()), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// Queues the copy of one box out of shared memory, into the thread's current bulk group.
__device__ __forceinline__ void store_box(const TensorMap& map, const void* shared, int c0, int c1, int c2, int c3,
                                          int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
        "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

// Waits until at most `kGroups` of the thread's bulk groups have sources still to be read.
template <int kGroups>
__device__ __forceinline__ void bulk_wait_sources_read_but() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

}  // namespace xstage
