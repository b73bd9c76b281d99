// Emulated: there is one order of all accesses here.
#pragma once

#include "common/types.cuh"

namespace xstage::megamoe {

inline void raise_counter(u32* counter) { ++*counter; }
inline void raise_counter_after_reads(u32* counter) { ++*counter; }
inline u32 read_counter(const u32* counter) { return *counter; }

}  // namespace xstage::megamoe
