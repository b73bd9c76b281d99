// Completion apart from the attention: signalling epochs whose launches did not, and waiting for those of others.
#include "attention_a2a/completion.cuh"
#include "common/timer.cuh"

namespace xstage {

// A wait that ran out, in memory that the host reads while the GPU works. Zero while nothing did.
struct EpochFault {
    u32 raised;  // written last
    u32 rank;    // the first sender that did not signal
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

// What a sender's word shows when it has come to the epoch, or when the time is over.
__device__ __forceinline__ u32 await_sender(const WaitArguments& arguments, u32 rank) {
    u32 seen = load_acquire_system(&arguments.words[rank]);
    if (seen < arguments.epoch) {
        // Behind a wait that ran out none takes its time: the host may have queued many before it learns of the first.
        const u64 patience_ns = load_acquire_system(&arguments.fault->raised) ? 0 : arguments.timeout_ns;
        const u64 give_up_ns = global_timer_ns() + patience_ns;
        do {
            seen = load_acquire_system(&arguments.words[rank]);
        } while (seen < arguments.epoch && global_timer_ns() < give_up_ns);
    }
    return seen;
}

}  // namespace xstage

using namespace xstage;

// One thread, in stream order behind launches without completion, whose stores it makes visible and signals.
extern "C" __global__ void signal_epoch(const __grid_constant__ AttentionArguments arguments) {
    fence_system();
    const u32 epoch = arguments.epochs->epoch + 1;
    signal_ranks(arguments, epoch);
    arguments.epochs->epoch = epoch;
}

// kMaxRanks threads, one for every sender; kernels behind it in the stream see what all of them stored.
extern "C" __global__ void wait_for_epoch(const WaitArguments arguments) {
    const u32 rank = threadIdx.x;
    const u32 seen = rank < arguments.ranks ? await_sender(arguments, rank) : arguments.epoch;
    const u32 late = __ballot_sync((1u << kMaxRanks) - 1, seen < arguments.epoch);
    EpochFault* fault = arguments.fault;
    // Of several late senders the first is reported, and of several waits the first that ran out.
    if (late != 0 && rank + 1 == static_cast<u32>(__ffs(late)) && load_acquire_system(&fault->raised) == 0) {
        fault->rank = rank;
        fault->expected = arguments.epoch;
        fault->seen = seen;
        fault->timeout_ns = arguments.timeout_ns;
        store_release_system(&fault->raised, 1);
    }
}
