// Receiving this rank's tokens of the epoch that goes on: all ranks' rows of them.
//
// A few CTAs await every sender's word, and copy the rows from the buffer of the epoch to where the caller wants them:
// what a later call stores to the buffer cannot hurt a result. Where the rows cannot be had the output is NaNs, so that
// nobody takes old rows for new ones, and the exchange has a fault. Few CTAs, since they may wait for long: others'
// work goes on beside them.
#pragma once

#include "attention_a2a/admission.cuh"
#include "common/timer.cuh"
#include "common/warpgroup.cuh"

namespace xstage {

constexpr u32 kWholeWarp = 0xffffffff;
constexpr u32 kBehind = ~0u;  // the only word short of an epoch that a sender can have: one less

// Whether all senders have come to the epoch. One warp, a lane for every sender.
__device__ __forceinline__ bool await_senders(Exchange* exchange, const Receipt& receipt, u32 epoch) {
    const u32 rank = threadIdx.x;
    const bool reads = rank < receipt.ranks;
    const u64 give_up_ns = global_timer_ns() + receipt.timeout_ns;
    for (;;) {
        const u32 seen = reads ? load_acquire_system(&receipt.words[rank]) : epoch;
        const u32 ahead = seen - epoch;
        const u32 late = __ballot_sync(kWholeWarp, ahead == kBehind);
        const u32 foreign = __ballot_sync(kWholeWarp, ahead > 1 && ahead != kBehind);
        if ((late | foreign) == 0) {
            return true;
        }
        // Calls may be queued behind one that failed, whose host learns of it later: they do not take their time.
        const bool over = global_timer_ns() >= give_up_ns || load_relaxed_gpu(&exchange->fault) != 0;
        if (foreign != 0 || __ballot_sync(kWholeWarp, over) != 0) {
            const u32 of = foreign != 0 ? foreign : late;
            if (rank + 1 == static_cast<u32>(__ffs(static_cast<int>(of)))) {
                raise_fault(exchange, foreign != 0 ? Fault::foreign : Fault::late, rank, epoch, seen,
                            receipt.timeout_ns);
            }
            return false;
        }
    }
}

// Moves the `part`-th part of the rows to the output, or fills that with NaNs.
__device__ __forceinline__ void deliver(const Receipt& receipt, const char* buffer, u32 part, u32 threads,
                                        bool complete) {
    constexpr u32 kInFlight = 8;
    const uint4* rows = reinterpret_cast<const uint4*>(buffer);
    const uint4 missing = {~0u, ~0u, ~0u, ~0u};
    const u32 stride = receipt.ctas * threads;
    for (u32 first = part * threads + threadIdx.x; first < receipt.vectors; first += kInFlight * stride) {
        uint4 values[kInFlight];
#pragma unroll
        for (u32 i = 0; i < kInFlight; ++i) {
            const u32 vector = first + i * stride;
            values[i] = complete && vector < receipt.vectors ? rows[vector] : missing;
        }
#pragma unroll
        for (u32 i = 0; i < kInFlight; ++i) {
            if (first + i * stride < receipt.vectors) {
                receipt.output[first + i * stride] = values[i];
            }
        }
    }
}

// The `part`-th of the CTAs that receive, all of whose threads come here; the last to be done ends the call.
__device__ __forceinline__ void receive(Exchange* exchange, u32 call, const Receipt& receipt, u64 epoch_bytes,
                                        u32 part, u32 threads) {
    bool admitted = false;
    bool there = true;
    if (threadIdx.x < kWarpThreads) {
        u32 granted = 0;
        if (threadIdx.x == 0) {
            granted = Admission(exchange, call).granted();
        }
        admitted = warp_uniform(granted) != 0;
        there = admitted && await_senders(exchange, receipt, load_relaxed_gpu(&exchange->epoch) + 1);
    }
    const bool complete = __syncthreads_and(there);
    const u32 slot = load_relaxed_gpu(&exchange->epoch) & 1;
    deliver(receipt, receipt.buffers + slot * epoch_bytes, part, threads, complete);
    __syncthreads();
    if (admitted && threadIdx.x == 0 && fetch_add_gpu(&exchange->received, 1) + 1 == receipt.ctas) {
        exchange->received = 0;
        end_call(exchange);
    }
}

}  // namespace xstage
