// Stand-in for kernels/common/store.cuh. A bulk copy reads its source only when it is waited for, so that a slot
// which is freed too early shows in the data.
#pragma once

#include <cstring>
#include <vector>

#include "common/types.cuh"

namespace xstage {

inline void store_v4(void* address, uint4 value) { std::memcpy(address, &value, sizeof(value)); }
inline u32 round_trip_behind_stores(void*, u32 value) { return value; }

struct BulkCopy {
    void* address;
    const void* shared;
    u32 bytes;
};

inline thread_local std::vector<BulkCopy> pending_copies;

inline void bulk_store(void* address, const void* shared, u32 bytes) { pending_copies.push_back({address, shared, bytes}); }
inline void bulk_commit() {}

inline void bulk_wait_sources_read() {
    for (const BulkCopy& copy : pending_copies) {
        std::memcpy(copy.address, copy.shared, copy.bytes);
    }
    pending_copies.clear();
}

inline void bulk_wait_complete() { bulk_wait_sources_read(); }
inline void fence_shared_for_bulk() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace xstage
