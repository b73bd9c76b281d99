// One start for all CTAs of a cooperative launch, on the global timer.
#pragma once

#include "common/timer.cuh"
#include "common/types.cuh"

namespace xstage {

constexpr u64 kArrivalTimeoutNs = 2'000'000'000;

// In global memory, zeroed by the host before each launch.
struct Start {
    u64 at_ns;  // 0 until the last one has arrived
    u32 arrived;
    u32 padding;
};
static_assert(sizeof(Start) == 16);

struct Arrival {
    u32 place;     // in the order of arrival
    u64 start_ns;  // 0 when not all arrived in time
    u32 seen;      // how many did
};

// Counts the caller, and waits until `expected` have arrived; the last sets the start `delay_ns` ahead. Once a CTA,
// before its first store: a barrier of atomics in the timed region would wait behind the outstanding stores and
// swallow their backpressure.
__device__ inline Arrival arrive_at_start(Start* start, u32 expected, u64 delay_ns) {
    const u32 place = atomicAdd(&start->arrived, 1);
    if (place + 1 == expected) {
        atomicExch(&start->at_ns, global_timer_ns() + delay_ns);
    }
    const u64 give_up_ns = global_timer_ns() + kArrivalTimeoutNs;
    u64 start_ns = 0;
    while ((start_ns = *reinterpret_cast<volatile u64*>(&start->at_ns)) == 0 && global_timer_ns() <= give_up_ns) {
    }
    return {place, start_ns, *reinterpret_cast<volatile u32*>(&start->arrived)};
}

}  // namespace xstage
