// Completion apart from the attention: signalling epochs whose launches did not, and waiting for those of others.
#include "attention_a2a/completion.cuh"
#include "common/timer.cuh"

namespace xstage {

// A wait that ran out, for the host to report. Zero while nothing did.
struct EpochFault {
    u32 raised;
    u32 rank;  // the sender that did not signal
    u32 expected;
    u32 seen;
    u64 timeout_ns;
};
static_assert(sizeof(EpochFault) == 24);

struct WaitArguments {
    const u32* words;  // [ranks] one of every sender, in this GPU's memory
    EpochFault* fault;
    u64 timeout_ns;
    u32 ranks;
    u32 epoch;
};
static_assert(sizeof(WaitArguments) == 32);

}  // namespace xstage

using namespace xstage;

// One thread, in stream order behind launches without completion, whose stores it makes visible and signals.
extern "C" __global__ void signal_epoch(const __grid_constant__ AttentionArguments arguments) {
    fence_system();
    const u32 epoch = arguments.epochs->epoch + 1;
    signal_ranks(arguments, epoch);
    arguments.epochs->epoch = epoch;
}

// One thread for every sender; kernels behind it in the stream see what all of them stored.
extern "C" __global__ void wait_for_epoch(const WaitArguments arguments) {
    const u32 rank = threadIdx.x;
    const u64 give_up_ns = global_timer_ns() + arguments.timeout_ns;
    u32 seen = 0;
    while (rank < arguments.ranks && (seen = load_acquire_system(&arguments.words[rank])) < arguments.epoch) {
        if (global_timer_ns() > give_up_ns) {
            // Several senders may be late, and earlier waits may have run out; the first is reported.
            if (atomicExch(&arguments.fault->raised, 1) == 0) {
                *arguments.fault = {1, rank, arguments.epoch, seen, arguments.timeout_ns};
            }
            return;
        }
    }
}
