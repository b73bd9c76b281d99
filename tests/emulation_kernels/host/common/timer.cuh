// Stand-in for kernels/common/timer.cuh: both clocks are the machine's monotonic one, which all processes share.
#pragma once

#include <ctime>

#include "common/types.cuh"

namespace xstage {

inline u64 global_timer_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
}

// Two ticks a ns, so that nobody takes cycles for ns.
inline u64 sm_clock() { return 2 * global_timer_ns(); }

u32 sm_id();

struct ClockPair {
    u64 timer_ns;
    u64 cycles;
};

inline ClockPair read_clock_pair() {
    const u64 now_ns = global_timer_ns();
    return {now_ns, 2 * now_ns};
}

inline void sleep_until_ns(u64 deadline_ns) {
    const timespec deadline = {static_cast<time_t>(deadline_ns / 1'000'000'000),
                               static_cast<long>(deadline_ns % 1'000'000'000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr);
}

inline void spin_until_cycle(u64 deadline_cycles) { sleep_until_ns(deadline_cycles / 2); }
inline void spin_until_ns(u64 deadline_ns) { sleep_until_ns(deadline_ns); }

}  // namespace xstage
