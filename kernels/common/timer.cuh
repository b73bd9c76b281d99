// The two clocks of a GPU and how they are tied together.
//
// clock64 counts cycles of one SM: fine-grained, not comparable between SMs. %globaltimer is common to the
// GPU, in ns, but ticks coarsely (32 ns on H200, 1 us on older parts). Spans are therefore taken in clock64
// and carried to the common axis by a (globaltimer, clock64) pair at each end of a lane.
#pragma once

#include "common/types.cuh"

namespace xstage {

__device__ __forceinline__ u64 global_timer_ns() {
    u64 now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns)::"memory");
    return now_ns;
}

__device__ __forceinline__ u64 sm_clock() {
    u64 cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

__device__ __forceinline__ u32 sm_id() {
    u32 id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

struct ClockPair {
    u64 timer_ns;
    u64 cycles;
};

// Reads the pair at an edge of the global timer, so that its error is one poll and not one tick.
__device__ __forceinline__ ClockPair read_clock_pair() {
    const u64 before_ns = global_timer_ns();
    ClockPair pair;
    do {
        pair.timer_ns = global_timer_ns();
        pair.cycles = sm_clock();
    } while (pair.timer_ns == before_ns);
    return pair;
}

// Spins on the SM's clock. Not nanosleep: its granularity is no gap, and the warp scheduler may add to it.
__device__ __forceinline__ void spin_until_cycle(u64 deadline_cycles) {
    while (static_cast<long long>(sm_clock() - deadline_cycles) < 0) {
    }
}

// Spins on the common timer: touches no memory, so it cannot wait behind outstanding stores (an atomic
// barrier would, and would hide the backpressure in itself).
__device__ __forceinline__ void spin_until_ns(u64 deadline_ns) {
    while (global_timer_ns() < deadline_ns) {
    }
}

}  // namespace xstage
