// Waits that give up at a deadline and then say what they waited for.
#pragma once

#include "common/mbarrier.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/arguments.cuh"
#include "emulation/primitives.cuh"

namespace xstage::emulation {

// Who waits, until when.
struct Waiter {
    Control* control;
    u64 deadline_ns;
    u32 lane;
    Role role;

    // The first fault of a launch is kept.
    __device__ void raise(Wait wait, u32 tile, u32 subject, u32 expected, u32 seen) const {
        Fault* fault = &control->fault;
        if (atomicCAS(&fault->raised, 0u, 1u) == 0) {
            fault->lane = lane;
            fault->role = static_cast<u32>(role);
            fault->wait = static_cast<u32>(wait);
            fault->tile = tile;
            fault->subject = subject;
            fault->expected = expected;
            fault->seen = seen;
        }
    }
};

// Waits for lap `lap` of a slot's barrier, counted from 0. No role falls a lap behind another, so a barrier that has
// not completed it has completed those before: `lap` of them, where lap + 1 are waited for.
__device__ __forceinline__ bool wait_for_lap(const Waiter& waiter, const Mbarrier& barrier, u32 lap, Wait wait,
                                             u32 tile, u32 slot) {
    while (!phase_is_complete(barrier, lap & 1)) {
        if (global_timer_ns() > waiter.deadline_ns) {
            waiter.raise(wait, tile, slot, lap + 1, lap);
            return false;
        }
    }
    return true;
}

}  // namespace xstage::emulation
