// Completion apart from the attention: signalling epochs whose launches did not, and receiving without sending.
#include "attention_a2a/completion.cuh"
#include "attention_a2a/receipt.cuh"

namespace xstage {

struct ReceiveArguments {
    Exchange* exchange;
    Receipt receipt;
    u64 epoch_bytes;
};
static_assert(sizeof(ReceiveArguments) == 64);

constexpr u32 kReceiveThreads = 512;

}  // namespace xstage

using namespace xstage;

// One thread, in stream order behind launches without completion, whose stores it makes visible and signals.
extern "C" __global__ void signal_epoch(const __grid_constant__ AttentionArguments arguments) {
    if (arguments.exchange->fault == 0) {
        signal_ranks(arguments);
        end_call(arguments.exchange);
    }
}

// Receives the next epoch for a rank that sends nothing.
extern "C" __global__ void __launch_bounds__(kReceiveThreads)
    receive_epoch(const __grid_constant__ ReceiveArguments arguments) {
    receive(arguments.exchange, 0, arguments.receipt, arguments.epoch_bytes, blockIdx.x, kReceiveThreads);
}
