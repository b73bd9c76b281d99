// Telling every rank that this sender's epoch has arrived.
//
// Every CTA, its stores issued, passes a barrier, fences at system scope and counts itself. The last one writes the
// new epoch to this sender's word at every rank. The words only grow, so a reader polls with >=.
//
// Two buffers a rank suffice when each rank waits for epoch e of all ranks before it launches epoch e + 2: whoever
// launches e + 2 has seen all signals of e + 1, which their senders launched after they had consumed e.
#pragma once

#include "attention_a2a/arguments.cuh"
#include "common/signal.cuh"

namespace xstage {

#ifndef OMIT_SIGNAL
#define OMIT_SIGNAL 0
#endif

__device__ __forceinline__ void signal_ranks(const AttentionArguments& arguments, u32 epoch) {
    for (u32 rank = 0; !OMIT_SIGNAL && rank < arguments.ranks; ++rank) {
        store_release_system(arguments.signal[rank], epoch);
    }
}

// One thread of a CTA, after a barrier with all that stored, each of whom has seen its own copies complete.
__device__ void complete_epoch(const AttentionArguments& arguments) {
    EpochState* state = arguments.epochs;
    fence_system();
    if (fetch_add_gpu(&state->arrived, 1) + 1 == gridDim.x) {
        const u32 epoch = state->epoch + 1;
        signal_ranks(arguments, epoch);
        state->epoch = epoch;
        state->arrived = 0;
    }
}

}  // namespace xstage
