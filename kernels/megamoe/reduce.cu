// The reduction behind Combine: every token's rows of its experts, weighted and summed in the order of its choices.
//
// The order is fixed and the sums are fp32, so the result is the same bit for bit whatever order the rows came in.
#include "common/signal.cuh"
#include "common/warpgroup.cuh"
#include "megamoe/row_wait.cuh"

namespace xstage::megamoe {

struct ReduceArguments {
    const char* combined;      // [tokens, top_k, hidden] bf16
    const float* weights;      // [tokens, top_k] of the router
    char* output;              // [tokens, hidden] bf16
    const u32* words;          // [ranks] of every sender, launches whose rows have arrived; null for none to wait for
    const LaunchState* state;  // of this rank, whose launch is behind it
    MoeFault* fault;
    u64 timeout_ns;
    u32 ranks;
    u32 tokens;
    u32 top_k;
    u32 hidden;
};
static_assert(sizeof(ReduceArguments) == 72);

// One thread of a CTA; the others behind a barrier.
__device__ __forceinline__ void await_senders(const ReduceArguments& arguments) {
    const u32 epoch = arguments.state->epoch;
    const u64 give_up_ns = global_timer_ns() + arguments.timeout_ns;
    for (u32 rank = 0; rank < arguments.ranks; ++rank) {
        u32 seen = load_acquire_system(&arguments.words[rank]);
        while (seen < epoch && !has_failed(arguments.fault) && global_timer_ns() < give_up_ns) {
            seen = load_acquire_system(&arguments.words[rank]);
        }
        if (seen < epoch) {
            raise_fault(arguments.fault, Wait::combine, rank, kNone, epoch, seen, arguments.timeout_ns);
        }
    }
}

__device__ __forceinline__ uint4 load_streamed(const char* address) {
    uint4 value;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address)
                 : "memory");
    return value;
}

// Adds the two bf16 of a word.
__device__ __forceinline__ void add_weighted(float (&sum)[2], u32 word, float weight) {
    sum[0] += weight * __uint_as_float(word << 16);
    sum[1] += weight * __uint_as_float(word & 0xffff0000u);
}

}  // namespace xstage::megamoe

using namespace xstage;
using namespace xstage::megamoe;

// Any grid; a thread has 8 columns of a token at a time.
extern "C" __global__ void reduce_combine(const __grid_constant__ ReduceArguments arguments) {
    if (arguments.words != nullptr) {
        if (threadIdx.x == 0) {
            await_senders(arguments);
        }
        __syncthreads();
    }
    const u32 vectors = arguments.hidden / 8;
    const u64 all = static_cast<u64>(arguments.tokens) * vectors;
    const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += step) {
        const u32 token = static_cast<u32>(at / vectors);
        const u32 vector = static_cast<u32>(at - static_cast<u64>(token) * vectors);
        const u64 first = static_cast<u64>(token) * arguments.top_k;
        float sum[4][2] = {};
        for (u32 choice = 0; choice < arguments.top_k; ++choice) {
            const uint4 row = load_streamed(arguments.combined + ((first + choice) * vectors + vector) * 16);
            const float weight = arguments.weights[first + choice];
            add_weighted(sum[0], row.x, weight);
            add_weighted(sum[1], row.y, weight);
            add_weighted(sum[2], row.z, weight);
            add_weighted(sum[3], row.w, weight);
        }
        *reinterpret_cast<uint4*>(arguments.output + at * 16) =
            make_uint4(pack_bf16(sum[0][0], sum[0][1]), pack_bf16(sum[1][0], sum[1][1]),
                       pack_bf16(sum[2][0], sum[2][1]), pack_bf16(sum[3][0], sum[3][1]));
    }
}
