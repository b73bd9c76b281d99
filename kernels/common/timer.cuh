// The clocks of a GPU, and how to wait by them.
#pragma once

#include "common/types.cuh"
#include "include/xstage/clock.cuh"

namespace xstage {

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
