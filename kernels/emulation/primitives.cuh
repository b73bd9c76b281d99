// The instructions that skeletons need beside those of common/: one wrapper each, named for what it does.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"
#include "emulation/arguments.cuh"

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

__device__ __forceinline__ void put_queued(QueuedTile* entry, QueuedTile tile) {
    asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(entry)), "r"(tile.ready),
                 "r"(tile.mainloop_cycles), "r"(tile.slot_offset_cycles), "r"(tile.signals_at_end)
                 : "memory");
}

__device__ __forceinline__ QueuedTile get_queued(const QueuedTile* entry) {
    QueuedTile tile;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile.ready), "=r"(tile.mainloop_cycles), "=r"(tile.slot_offset_cycles),
                   "=r"(tile.signals_at_end)
                 : "r"(shared_address(entry))
                 : "memory");
    return tile;
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
