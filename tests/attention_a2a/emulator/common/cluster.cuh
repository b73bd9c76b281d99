// Emulated: see cta.hpp. What goes to another CTA is work of that one's engine, and gets there late or soon.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace xstage {

constexpr u32 kRankShift = 24;  // an address in the cluster: the CTA's number above the one in its shared memory

inline void cluster_sync() { emulator::meet_cluster(); }
inline u32 address_in_cluster(u32 address, u32 rank) { return rank << kRankShift | address; }
inline char* in_shared(u32 address) { return ::shared + (address & ((1u << kRankShift) - 1)); }
inline Mbarrier& barrier_at(u32 address) { return *reinterpret_cast<Mbarrier*>(in_shared(address)); }

inline void store_async(u32 address, FloatVector value, u32 barrier) {
    if (address >> kRankShift != barrier >> kRankShift) {
        emulator::fail("a store to one CTA that counts at the barrier of another");
    }
    emulator::start_in_cta(address >> kRankShift, [address, value, barrier] {
        std::memcpy(in_shared(address), &value, sizeof value);
        barrier_at(barrier).copied(sizeof value);
    });
}

inline void arrive_in_cluster(u32 barrier) {
    emulator::start_in_cta(barrier >> kRankShift, [barrier] { barrier_at(barrier).arrive_from_afar(); });
}

inline void wait_in_cluster(Mbarrier& barrier, u32 parity) { barrier.wait(parity); }

}  // namespace xstage
