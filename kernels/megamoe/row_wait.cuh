// Waits for what other CTAs and ranks do, with a deadline.
#pragma once

#include "common/timer.cuh"
#include "megamoe/arguments.cuh"
#include "megamoe/row_counter.cuh"

namespace xstage::megamoe {

// Keeps the first fault of a launch, for the host.
__device__ __forceinline__ void raise_fault(MoeFault* fault, Wait wait, u32 rank, u32 row, u32 expected, u32 seen,
                                            u64 timeout_ns) {
    if (atomicCAS(&fault->raised, 0u, 1u) == 0) {
        fault->wait = static_cast<u32>(wait);
        fault->rank = rank;
        fault->row = row;
        fault->expected = expected;
        fault->seen = seen;
        fault->cta = blockIdx.x;
        fault->timeout_ns = timeout_ns;
    }
}

// Behind a wait that ran out none takes its time: the launch ends soon after the first, with a result that is worth
// nothing.
__device__ __forceinline__ bool has_failed(const MoeFault* fault) {
    return *static_cast<const volatile u32*>(&fault->raised) != 0;
}

// Returns when a row's counter has come to what is expected, or when the time is over. What a rank does not send is
// missed by who pulls it first, and here only later.
__device__ __forceinline__ void await_row(const MoeArguments& arguments, Wait wait, const u32* counters, u32 row,
                                          u32 expected) {
    const u64 patience_ns = wait == Wait::arrival ? 2 * arguments.timeout_ns : arguments.timeout_ns;
    const u64 give_up_ns = global_timer_ns() + patience_ns;
    while (read_counter(&counters[row]) < expected) {
        if (has_failed(arguments.fault) || global_timer_ns() > give_up_ns) {
            raise_fault(arguments.fault, wait, arguments.rank, row, expected, read_counter(&counters[row]),
                        patience_ns);
            return;
        }
    }
}

}  // namespace xstage::megamoe
