// Barriers in shared memory that threads and bulk copies arrive at.
//
// A barrier's phases alternate in parity. `wait(p)` returns once the phase of parity p is complete; on a fresh
// barrier, `wait(1)` returns at once, which is how producers find empty buffers at the start.
#pragma once

#include "common/types.cuh"

namespace xstage {

__device__ __forceinline__ u32 shared_address(const void* shared) {
    return static_cast<u32>(__cvta_generic_to_shared(shared));
}

class Mbarrier {
public:
    __device__ __forceinline__ void init(u32 arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
    }

    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
    }

    // Arrives, and keeps the phase open until `bytes` more have been copied in.
    __device__ __forceinline__ void arrive_expecting(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                     : "memory");
    }

    // Acquires what the arriving threads wrote before, and what copies brought.
    __device__ __forceinline__ void wait(u32 parity) {
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "again:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@done bra finished;\n"
            "bra again;\n"
            "finished:\n"
            "}\n" ::"r"(address()),
            "r"(parity)
            : "memory");
    }

    // `wait` without waiting: whether the phase is complete.
    __device__ __forceinline__ bool is_complete(u32 parity) const {
        u32 complete;
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "selp.u32 %0, 1, 0, done;\n"
            "}\n"
            : "=r"(complete)
            : "r"(address()), "r"(parity)
            : "memory");
        return complete != 0;
    }

    __device__ __forceinline__ u32 address() const { return shared_address(&state_); }

private:
    u64 state_;
};
static_assert(sizeof(Mbarrier) == 8);

// Makes initialised barriers visible to bulk copies. One thread, before the CTA's barrier.
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace xstage
