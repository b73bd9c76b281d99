// Waiting for the Linear-1 of a row, with a deadline.
#pragma once

#include "common/timer.cuh"
#include "megamoe/arguments.cuh"
#include "megamoe/row_counter.cuh"

namespace xstage::megamoe {

// Keeps the first fault of a launch, for the host.
__device__ __forceinline__ void raise_fault(const MoeArguments& arguments, u32 row, u32 expected, u32 seen) {
    MoeFault* fault = arguments.fault;
    if (atomicCAS(&fault->raised, 0u, 1u) == 0) {
        fault->rank = arguments.rank;
        fault->row = row;
        fault->expected = expected;
        fault->seen = seen;
        fault->cta = blockIdx.x;
        fault->timeout_ns = arguments.timeout_ns;
    }
}

__device__ __forceinline__ bool row_is_there(const MoeArguments& arguments, u32 row) {
    return read_counter(&arguments.counters[row]) >= arguments.scheduler.l1_groups;
}

// Returns when all Linear-1 tiles of the row are stored, or when the time is over. Behind a wait that ran out none
// takes its time, so the launch ends soon after the first, with a result that is worth nothing.
__device__ __forceinline__ void await_row(const MoeArguments& arguments, u32 row) {
    const u64 give_up_ns = global_timer_ns() + arguments.timeout_ns;
    const volatile u32* raised = &arguments.fault->raised;
    while (!row_is_there(arguments, row)) {
        if (*raised != 0 || global_timer_ns() > give_up_ns) {
            raise_fault(arguments, row, arguments.scheduler.l1_groups, read_counter(&arguments.counters[row]));
            return;
        }
    }
}

}  // namespace xstage::megamoe
