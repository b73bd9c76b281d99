// Counters in global memory by which Linear-2 learns that its row's Linear-1 outputs are there; one word a row.
//
// What a fence does behind remote stores. A release at GPU scope makes all that its thread has written, or has seen
// written through the CTA's barriers, visible before the counter moves: the SM waits for its outstanding stores, and
// the remote ones among them may take as long as the whole backlog drains (tens of us). The counter protects local
// Linear-1 output only. So the output leaves as bulk copies of one thread that stores nothing else and takes part in
// no barrier with those that store remotely: `bulk_wait_complete` says that these copies, and no others, are visible
// to that thread, and its release has nothing else to order. That is what `raise_counter` expects of its caller.
#pragma once

#include "common/types.cuh"

namespace xstage::megamoe {

// Adds 1; whoever acquires the new value sees what this thread wrote before.
__device__ __forceinline__ void raise_counter(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// Adds 1 and orders nothing: for a row that was read, whose reads have returned.
__device__ __forceinline__ void raise_counter_after_reads(u32* counter) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ u32 read_counter(const u32* counter) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

}  // namespace xstage::megamoe
