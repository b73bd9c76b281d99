// The instructions that skeletons need beside those of common/: one wrapper each, named for what it does.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"
#include "emulation/queue.cuh"

namespace xstage::emulation {

__device__ __forceinline__ char* dynamic_shared_memory() {
    extern __shared__ __align__(128) char shared[];
    return shared;
}

// Whether the phase of `parity` is complete; may wait a while for it.
__device__ __forceinline__ bool phase_is_complete(const Mbarrier& barrier, u32 parity) {
    u32 complete;
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, done;\n\t}"
        : "=r"(complete)
        : "r"(barrier.address()), "r"(parity)
        : "memory");
    return complete != 0;
}

// The same, at once.
__device__ __forceinline__ bool phase_has_ended(const Mbarrier& barrier, u32 parity) {
    u32 ended;
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
        "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, done;\n\t}"
        : "=r"(ended)
        : "r"(barrier.address()), "r"(parity)
        : "memory");
    return ended != 0;
}

// Each 64-bit word in one access, and no order, as each says whose it is. No barrier is between these two, so
// compute-sanitizer's racecheck reports them.
__device__ __forceinline__ void put_entry(QueueEntry* place, QueueEntry entry) {
    asm volatile("st.relaxed.cta.shared.v2.u64 [%0], {%1, %2};" ::"r"(shared_address(place)), "l"(entry.first),
                 "l"(entry.second)
                 : "memory");
}

__device__ __forceinline__ QueueEntry get_entry(const QueueEntry* place) {
    QueueEntry entry;
    asm volatile("ld.relaxed.cta.shared.v2.u64 {%0, %1}, [%2];"
                 : "=l"(entry.first), "=l"(entry.second)
                 : "r"(shared_address(place))
                 : "memory");
    return entry;
}

// Barrier of the first `kThreads` threads of the CTA; true if `value` is ~0 in any of them. Not the CTA's barrier 0.
template <u32 kThreads>
__device__ __forceinline__ bool any_is_ones(u32 value) {
    constexpr u32 kBarrier = 1;
    u32 any;
    asm volatile(
        "{\n\t.reg .pred mine, any;\n\t"
        "setp.eq.u32 mine, %1, 0xffffffff;\n\t"
        "barrier.cta.red.or.pred any, %2, %3, mine;\n\t"
        "selp.u32 %0, 1, 0, any;\n\t}"
        : "=r"(any)
        : "r"(value), "n"(kBarrier), "n"(kThreads)
        : "memory");
    return any != 0;
}

// For waits that are part of no span: leaves the SM's units to the others.
__device__ __forceinline__ void pause_ns(u32 about_ns) { __nanosleep(about_ns); }

// Trap 8 on purpose: waits until this thread's stores are visible to every processor of the system.
__device__ __forceinline__ void await_visibility_to_system() { asm volatile("fence.sc.sys;" ::: "memory"); }

}  // namespace xstage::emulation
