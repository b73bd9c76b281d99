// Emulated: see cta.hpp. Every round of the scheduler takes 100 cycles of 1 ns.
#pragma once

#include "cta.hpp"
#include "common/types.cuh"

namespace xstage {

inline u64 sm_clock() { return emulator::cta().clock; }
inline u64 global_timer_ns() { return emulator::cta().clock; }
inline u32 sm_id() { return emulator::cta().block.x; }

struct ClockPair {
    u64 timer_ns;
    u64 cycles;
};

inline ClockPair read_clock_pair() { return {global_timer_ns(), sm_clock()}; }

inline void spin_until_cycle(u64 deadline) {
    emulator::cta().current->strayed = true;  // each lane reads the clock by itself
    emulator::wait_until_clock(deadline);
}

}  // namespace xstage
