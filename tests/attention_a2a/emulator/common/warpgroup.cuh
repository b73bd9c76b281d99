// Emulated: see cta.hpp.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace xstage {

constexpr u32 kWarpThreads = 32;
constexpr u32 kWarpgroupThreads = 128;

template <u32 kRegisters>
inline void release_registers() {}
template <u32 kRegisters>
inline void claim_registers() {}

inline u32 warp_uniform(u32 value) { return emulator::exchange(value, 0); }

inline void named_barrier_sync(u32 barrier, u32 threads) {
    emulator::require_aligned_warp();
    emulator::rendezvous(emulator::cta().barriers[barrier], threads);
}

inline void named_barrier_arrive(u32 barrier, u32 threads) {
    emulator::require_aligned_warp();
    emulator::cta().barriers[barrier].arrive(threads);
}

inline void store_matrices(u32 row_address, const u32 (&matrices)[4]) {
    emulator::require_aligned_warp();
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        const u32 row = emulator::exchange(row_address, i * 8 + lane / 4);
        std::memcpy(::shared + row + lane % 4 * 4, &matrices[i], 4);
    }
}

inline uint4 load_shared_v4(u32 address) {
    uint4 value;
    std::memcpy(&value, ::shared + address, 16);
    return value;
}

inline FloatVector load_shared_floats(u32 address) {
    FloatVector value;
    std::memcpy(&value, ::shared + address, 16);
    return value;
}

inline u32 bf16_bits(float value) {
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline u32 pack_bf16(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }

inline float exp2_approximate(float x) { return std::exp2(x); }

}  // namespace xstage
