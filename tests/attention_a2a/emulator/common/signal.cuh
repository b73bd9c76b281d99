// Emulated: see cta.hpp. There is one order of all accesses here, so fences do nothing.
#pragma once

#include "common/types.cuh"

namespace xstage {

inline void fence_system() {}
inline void fence_gpu() {}
inline void store_relaxed_system(u32* word, u32 value) { *word = value; }
inline void store_release_system(u32* word, u32 value) { *word = value; }
inline u32 load_acquire_system(const u32* word) { return *word; }
inline u32 fetch_add_gpu(u32* word, u32 value) { return (*word += value) - value; }

inline u32 fetch_add_relaxed_gpu(u32* word, u32 value) { return fetch_add_gpu(word, value); }
inline u32 load_relaxed_gpu(const u32* word) { return *word; }
inline void store_relaxed_gpu(u32* word, u32 value) { *word = value; }

inline u32 compare_and_swap_gpu(u32* word, u32 expected, u32 value) {
    const u32 before = *word;
    *word = before == expected ? value : before;
    return before;
}

}  // namespace xstage
