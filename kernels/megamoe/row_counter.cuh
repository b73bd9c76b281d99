// Counters in global memory by which Linear-2 learns that its row's Linear-1 outputs are there; one word a row.
//
// What a fence does behind remote stores. A release at GPU scope makes all that its thread has written, or has learnt
// of through the CTA's barriers, visible before the counter moves, remote stores included: behind a backlog, tens of
// us if the SM waits for them to drain. The counter protects local Linear-1 output only. So the output leaves as bulk
// copies of one thread that stores nothing else: `bulk_wait_complete` then waits for these copies and no others, and
// no thread that stores remotely is held up by the release. What is left is what the release itself waits for: on an
// H200 with stores to host memory, copies and release together took 0.7 us on average in interleaved order and 1.2 to
// 1.4 us in waves, so it did not wait for the path to drain. Of stores to a peer it is not known.
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
