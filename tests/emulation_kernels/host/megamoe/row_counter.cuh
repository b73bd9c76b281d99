// Stand-in for kernels/megamoe/row_counter.cuh.
#pragma once

#include <sched.h>

#include "common/types.cuh"

namespace xstage::megamoe {

inline void raise_counter(u32* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELEASE); }
inline void raise_counter_after_reads(u32* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

// Gives way: the loader role polls, and there are more threads than processors.
inline u32 read_counter(const u32* counter) {
    sched_yield();
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

}  // namespace xstage::megamoe
