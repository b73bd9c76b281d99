// Telling every rank that this sender's epoch has arrived.
//
// Every CTA, its stores issued, passes a barrier, fences at system scope and counts itself. The last one fences again,
// for what it knows of the others, and writes the new epoch to this sender's word at every rank: two fences lie between
// a store and the words, however many ranks there are.
//
// Two buffers a rank suffice when each rank has received epoch e of all ranks before it launches e + 1: whoever
// launches e + 2 has seen all signals of e + 1, which their senders launched after they had received e. For the same
// reason a word can only be at e or e + 1 while its reader awaits e.
#pragma once

#include "attention_a2a/admission.cuh"
#include "attention_a2a/arguments.cuh"
#include "common/signal.cuh"

namespace xstage {

#ifndef OMIT_SIGNAL
#define OMIT_SIGNAL 0
#endif

// Says that the epoch of the call that goes on has arrived, behind the stores of all CTAs. One thread.
__device__ __forceinline__ void signal_ranks(const AttentionArguments& arguments) {
    Exchange* exchange = arguments.exchange;
    fence_system();
    const u32 epoch = exchange->epoch + 1;
    for (u32 rank = 0; !OMIT_SIGNAL && rank < arguments.ranks; ++rank) {
        store_relaxed_system(arguments.signal[rank], epoch);
    }
}

// One thread of a CTA that was admitted, after a barrier with all that stored, each of whom has seen its own copies
// complete.
__device__ void complete_epoch(const AttentionArguments& arguments) {
    Exchange* exchange = arguments.exchange;
    fence_system();
    if (fetch_add_relaxed_gpu(&exchange->arrived, 1) + 1 == arguments.ctas) {
        signal_ranks(arguments);
        exchange->arrived = 0;
        if (arguments.complete == Completion::signal) {
            end_call(exchange);
        }
    }
}

}  // namespace xstage
