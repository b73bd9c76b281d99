// Emulated: see cta.hpp. There is one order of all accesses here, so fences do nothing.
#pragma once

#include "common/types.cuh"

namespace xstage {

inline void fence_system() {}
inline void store_release_system(u32* word, u32 value) { *word = value; }
inline u32 load_acquire_system(const u32* word) { return *word; }
inline u32 fetch_add_gpu(u32* word, u32 value) { return (*word += value) - value; }

}  // namespace xstage
