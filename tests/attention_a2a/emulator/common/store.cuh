// Emulated: see cta.hpp.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace xstage {

inline void store_v4(void* address, uint4 value) {
    emulator::cta().current->strayed = true;  // which lanes store depends on the lane
    std::memcpy(address, &value, 16);
}
inline u32 round_trip_behind_stores(void* word, u32 value) { return *static_cast<u32*>(word) = value; }
inline void fence_shared_for_bulk() {}

inline void bulk_commit() {
    emulator::Thread& thread = *emulator::cta().current;
    thread.copies.push_back(std::move(thread.open_copies));
    thread.open_copies.clear();
}

inline void bulk_wait_sources_read() { emulator::run_groups(emulator::cta().current->copies, 0); }
inline void bulk_wait_complete() { bulk_wait_sources_read(); }

}  // namespace xstage
