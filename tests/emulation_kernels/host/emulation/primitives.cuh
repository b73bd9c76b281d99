// Stand-in for kernels/emulation/primitives.cuh.
#pragma once

#include "common/mbarrier.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/arguments.cuh"

namespace xstage::emulation {

char* dynamic_shared_memory();

inline bool phase_is_complete(const Mbarrier& barrier, u32 parity) {
    if (!barrier.is_complete(parity)) {
        barrier.wait_a_while(parity);
    }
    return barrier.is_complete(parity);
}

inline void put_queued(QueuedTile* entry, QueuedTile tile) {
    entry->mainloop_cycles = tile.mainloop_cycles;
    entry->slot_offset_cycles = tile.slot_offset_cycles;
    entry->signals_at_end = tile.signals_at_end;
    __atomic_store_n(&entry->ready, tile.ready, __ATOMIC_RELEASE);
}

inline QueuedTile get_queued(const QueuedTile* entry) {
    QueuedTile tile;
    tile.ready = __atomic_load_n(&entry->ready, __ATOMIC_ACQUIRE);
    tile.mainloop_cycles = entry->mainloop_cycles;
    tile.slot_offset_cycles = entry->slot_offset_cycles;
    tile.signals_at_end = entry->signals_at_end;
    return tile;
}

bool any_is_ones_of(u32 threads, u32 value);

template <u32 kThreads>
bool any_is_ones(u32 value) {
    return any_is_ones_of(kThreads, value);
}

inline void pause_ns(u32 about_ns) { sleep_until_ns(global_timer_ns() + about_ns); }

inline void await_visibility_to_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace xstage::emulation
