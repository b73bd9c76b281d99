// The two clocks of a GPU and how they are tied together.
//
// clock64 counts cycles of one SM: fine-grained, not comparable between SMs. %globaltimer is common to the
// GPU, in ns, but ticks coarsely (32 ns on H200, 1 us on older parts). Spans are therefore taken in clock64
// and carried to the common axis by a (globaltimer, clock64) pair at each end of a lane.
#ifndef XSTAGE_CLOCK_CUH  // defined before by what brings clocks of its own
#define XSTAGE_CLOCK_CUH

namespace xstage {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ __forceinline__ u64 global_timer_ns() {
    u64 now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns)::"memory");
    return now_ns;
}

__device__ __forceinline__ u64 sm_clock() {
    u64 cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

__device__ __forceinline__ u32 sm_id() {
    u32 id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

struct ClockPair {
    u64 timer_ns;
    u64 cycles;
};

// Reads the pair at an edge of the global timer, so that its error is one poll and not one tick.
__device__ __forceinline__ ClockPair read_clock_pair() {
    const u64 before_ns = global_timer_ns();
    ClockPair pair;
    do {
        pair.timer_ns = global_timer_ns();
        pair.cycles = sm_clock();
    } while (pair.timer_ns == before_ns);
    return pair;
}

}  // namespace xstage

#endif
