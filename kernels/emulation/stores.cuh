// How a tile's bytes leave its slot: by register stores of all threads of the issue role, or as bulk copies.
//
// Both return when the SM has given all of the tile away, as in calibration: the load/store unit has passed on the
// last register store, or the copies have read their sources. Local bytes go first.
#pragma once

#include "common/pattern.cuh"
#include "common/store.cuh"
#include "common/types.cuh"
#include "emulation/cta.cuh"
#include "emulation/primitives.cuh"

namespace xstage::emulation {

// Bulk copies in pieces, by one thread.
__device__ __forceinline__ void copy_pieces(char* to, const char* from, u32 bytes) {
    for (u32 offset = 0; offset < bytes; offset += kPieceBytes) {
        bulk_store(to + offset, from + offset, min(kPieceBytes, bytes - offset));
    }
}

struct BulkStores {
    // Before T_RS: a fused kernel's mainloop leaves the tile as it is to be stored.
    __device__ static void prepare(const Burst& burst) {
        for (u32 offset = 0; offset < burst.remote_bytes + burst.local_bytes; offset += kPieceBytes) {
            *reinterpret_cast<u32*>(burst.from + offset) = burst.number;
        }
        fence_shared_for_bulk();
    }

    __device__ static void store(const Burst& burst) {
        copy_pieces(burst.local, burst.from + burst.remote_bytes, burst.local_bytes);
        copy_pieces(burst.remote, burst.from, burst.remote_bytes);
        bulk_commit();
        bulk_wait_sources_read();
    }

    // Waits until the owner could see all that was stored.
    __device__ static void await_visibility() { bulk_wait_complete(); }
};

// The issue role of flavour st.v4.
constexpr u32 kVectorThreads = 256;

// 16 bytes a thread, a few loads ahead of their stores. `phase`: of `from` in the tile.
__device__ __forceinline__ void store_vectors(char* to, const char* from, u32 bytes, u32 phase, u32 number,
                                              u32 thread) {
    constexpr u32 kBatch = 4;
    constexpr u32 kStride = kVectorThreads * kVectorBytes;
    static_assert(kStride == kPieceBytes, "each thread stores the same vector of every piece");
    const bool numbered = (phase + thread * kVectorBytes) % kPieceBytes == 0;
    for (u32 first = thread * kVectorBytes; first < bytes; first += kBatch * kStride) {
        uint4 vectors[kBatch];
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            if (first + i * kStride < bytes) {
                vectors[i] = *reinterpret_cast<const uint4*>(from + first + i * kStride);
                vectors[i].x = numbered ? number : vectors[i].x;
            }
        }
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            if (first + i * kStride < bytes) {
                store_v4(to + first + i * kStride, vectors[i]);
            }
        }
    }
}

struct VectorStores {
    // All threads of the role; `word`: shared memory, one a thread.
    //
    // In an earlier lap of the slot the signal role may have numbered its pieces: before it arrived at free[slot], for
    // which the mainloop role waited before it arrived at full[slot]. compute-sanitizer's racecheck does not follow
    // both barriers, and reports some of these words.
    __device__ static void store(const Burst& burst, u32 thread, u32* word) {
        store_vectors(burst.local, burst.from + burst.remote_bytes, burst.local_bytes, burst.remote_bytes,
                      burst.number, thread);
        store_vectors(burst.remote, burst.from, burst.remote_bytes, 0, burst.number, thread);
        // A barrier alone is passed while stores still queue in the load/store unit. No thread's word is ~0.
        any_is_ones<kVectorThreads>(round_trip_behind_stores(word, thread));
    }

    __device__ static void await_visibility() {
        await_visibility_to_system();
        any_is_ones<kVectorThreads>(0);
    }
};

}  // namespace xstage::emulation
