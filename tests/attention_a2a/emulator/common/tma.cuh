// Emulated: see cta.hpp. A map is what xstage_tune's tests encode: base, rank, sizes, strides, box.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace xstage {

struct alignas(64) TensorMap {
    u64 base;
    u64 rank;
    u64 sizes[5];
    u64 stride_bytes[4];
    u64 box[5];
};
static_assert(sizeof(TensorMap) == 128);

inline void prefetch_map(const TensorMap&) {}

// Walks a box of rows of 64 elements; `copy(place in shared memory, global row or null, in-row byte)` for each element.
template <typename Copy>
inline void walk_box(const TensorMap& map, u32 shared_place, std::array<int, 5> from, Copy copy) {
    u64 index[5] = {};
    u64 elements = 1;
    for (u64 i = 0; i < map.rank; ++i) {
        elements *= map.box[i];
    }
    for (u64 element = 0; element < elements; ++element) {
        u64 rest = element;
        u64 address = map.base;
        bool inside = true;
        for (u64 i = 0; i < map.rank; ++i) {
            index[i] = rest % map.box[i];
            rest /= map.box[i];
            const long long at = from[i] + static_cast<long long>(index[i]);
            inside = inside && at >= 0 && at < static_cast<long long>(map.sizes[i]);
            address += static_cast<u64>(at) * (i == 0 ? 2 : map.stride_bytes[i - 1]);
        }
        const u32 linear = shared_place + static_cast<u32>(element * 2);
        copy(::shared + (linear ^ ((linear >> 3) & 0x70)), inside ? reinterpret_cast<char*>(address) : nullptr);
    }
}

inline u32 box_bytes(const TensorMap& map) {
    u64 bytes = 2;
    for (u64 i = 0; i < map.rank; ++i) {
        bytes *= map.box[i];
    }
    return static_cast<u32>(bytes);
}

inline void load_box(void* place, const TensorMap& map, Mbarrier& full, int c0, int c1, int c2, int c3) {
    const u32 to = shared_address(place);
    if (to % 1024 != 0 || map.rank != 4) {
        emulator::fail("a copy into a place or with a map that is not its own");
        return;
    }
    emulator::start_copy([&map, &full, to, c0, c1, c2, c3] {
        walk_box(map, to, {c0, c1, c2, c3, 0}, [](char* in_shared, const char* in_global) {
            if (in_global != nullptr) {
                std::memcpy(in_shared, in_global, 2);
            } else {
                std::memset(in_shared, 0, 2);
            }
        });
        full.copied(box_bytes(map));
    });
}

inline void store_box(const TensorMap& map, const void* place, int c0, int c1, int c2, int c3, int c4) {
    if (map.rank != 5 || c0 < 0 || c1 < 0 || c2 < 0 || c3 < 0 || c4 < 0) {
        emulator::fail("illegal instruction: a copy out of shared memory with an empty map or a negative coordinate");
        return;
    }
    const u32 from = shared_address(place);
    auto task = emulator::start_copy([&map, from, c0, c1, c2, c3, c4] {
        walk_box(map, from, {c0, c1, c2, c3, c4}, [](const char* in_shared, char* in_global) {
            if (in_global != nullptr) {
                std::memcpy(in_global, in_shared, 2);
            }
        });
    });
    emulator::cta().current->open_copies.push_back(task);
}

template <int kGroups>
inline void bulk_wait_sources_read_but() {
    emulator::run_groups(emulator::cta().current->copies, kGroups);
}

}  // namespace xstage
