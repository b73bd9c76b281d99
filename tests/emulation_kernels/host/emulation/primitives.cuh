// Stand-in for kernels/emulation/primitives.cuh.
#pragma once

#include <sched.h>

#include "common/mbarrier.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/queue.cuh"

namespace xstage::emulation {

char* dynamic_shared_memory();

inline bool phase_is_complete(const Mbarrier& barrier, u32 parity) {
    if (!barrier.is_complete(parity)) {
        barrier.wait_a_while(parity);
    }
    return barrier.is_complete(parity);
}

inline bool phase_has_ended(const Mbarrier& barrier, u32 parity) { return barrier.is_complete(parity); }

// The words in either order, and others may look in between.
inline void put_entry(QueueEntry* place, QueueEntry entry) {
    const bool second_first = (entry.number() & 1) != 0;
    if (second_first) {
        __atomic_store_n(&place->second, entry.second, __ATOMIC_RELAXED);
        sched_yield();
    }
    __atomic_store_n(&place->first, entry.first, __ATOMIC_RELAXED);
    if (!second_first) {
        sched_yield();
        __atomic_store_n(&place->second, entry.second, __ATOMIC_RELAXED);
    }
}

inline QueueEntry get_entry(const QueueEntry* place) {
    return {__atomic_load_n(&place->first, __ATOMIC_RELAXED), __atomic_load_n(&place->second, __ATOMIC_RELAXED)};
}

bool any_is_ones_of(u32 threads, u32 value);

template <u32 kThreads>
bool any_is_ones(u32 value) {
    return any_is_ones_of(kThreads, value);
}

inline void pause_ns(u32 about_ns) { sleep_until_ns(global_timer_ns() + about_ns); }

inline void await_visibility_to_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace xstage::emulation
