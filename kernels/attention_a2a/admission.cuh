// Whether a launch may store, and to which of the two buffers.
//
// Not after a fault: calls that were queued behind it would overwrite what a late rank still awaits. And not while
// another call of the exchange goes on: streams and graphs are ordered by who launches them, and where nobody did, the
// later call is refused, loudly, in place of two that count each other's CTAs. A launch that is refused computes, but
// stores, counts and signals nothing.
//
// The producer asks before its first copies and looks at the answer behind them, so that nobody waits for it.
#pragma once

#include "attention_a2a/arguments.cuh"
#include "common/signal.cuh"

namespace xstage {

// Of the two buffers of a rank, or none.
constexpr u32 kRefused = 2;

// Stops the exchange, and tells the host; of several faults the first stands.
__device__ inline void raise_fault(Exchange* exchange, Fault fault, u32 rank, u32 expected, u32 seen, u64 timeout_ns) {
    if (compare_and_swap_gpu(&exchange->fault, 0, static_cast<u32>(fault)) == 0) {
        FaultRecord* record = exchange->record;
        record->rank = rank;
        record->expected = expected;
        record->seen = seen;
        record->timeout_ns = timeout_ns;
        store_release_system(&record->raised, static_cast<u32>(fault));
    }
}

// The call is over, and all that it did is seen by whoever is admitted next. One thread, behind all others.
__device__ __forceinline__ void end_call(Exchange* exchange) {
    exchange->epoch += 1;
    fence_gpu();
    store_relaxed_gpu(&exchange->holder, 0);
}

class Admission {
public:
    __device__ __forceinline__ Admission(Exchange* exchange, u32 call) : exchange_(exchange), call_(call) {
        if (exchange_ != nullptr && call_ != 0) {
            holder_ = compare_and_swap_gpu(&exchange_->holder, 0, call_);
        }
    }

    // Whether the call may go on.
    __device__ __forceinline__ bool granted() const {
        if (holder_ != 0 && holder_ != call_) {
            raise_fault(exchange_, Fault::overlap, 0, call_, holder_, 0);
            return false;
        }
        fence_gpu();
        return load_relaxed_gpu(&exchange_->fault) == 0;
    }

    // The buffer to store to, or kRefused.
    __device__ __forceinline__ u32 slot(u64 epoch_bytes) const {
        if (exchange_ == nullptr) {
            return 0;
        }
        if (!granted()) {
            return kRefused;
        }
        return epoch_bytes != 0 ? load_relaxed_gpu(&exchange_->epoch) & 1 : 0;
    }

private:
    Exchange* exchange_;
    u32 call_;
    u32 holder_ = 0;
};

}  // namespace xstage
