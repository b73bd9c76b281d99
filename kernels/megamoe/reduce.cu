// The reduction behind Combine: every token's rows of its experts, weighted and summed in the order of its choices.
//
// The order is fixed and the sums are fp32, so the result is the same bit for bit whatever order the rows came in.
//
// The first CTA waits for the senders' words, the others for its own word in this GPU's memory: where the senders'
// words lie in the host's memory, a thousand CTAs that look at them take 1 ms.
#include "common/signal.cuh"
#include "common/warpgroup.cuh"
#include "megamoe/row_wait.cuh"

namespace xstage::megamoe {

struct ReduceArguments {
    const char* combined;      // [tokens, top_k, hidden] bf16
    const float* weights;      // [tokens, top_k] of the router
    char* output;              // [tokens, hidden] bf16
    const u32* words;          // [ranks] of every sender, launches whose rows have arrived; null for none to wait for
    LaunchState* state;  // of this rank, whose launch is behind it
    MoeFault* fault;
    u64 timeout_ns;
    u32 ranks;
    u32 tokens;
    u32 top_k;
    u32 hidden;
};
static_assert(sizeof(ReduceArguments) == 72);

// One thread of the first CTA. When the time is over it lets the others go all the same: the launch's result is worth
// nothing.
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
    fence_gpu();
    store_relaxed_gpu(&arguments.state->combined, epoch);
}

// One thread of another CTA. The first one is resident, since CTAs begin in their order, and names who did not come.
__device__ __forceinline__ void await_first_cta(const ReduceArguments& arguments) {
    const u32 epoch = arguments.state->epoch;
    const u64 give_up_ns = global_timer_ns() + 2 * arguments.timeout_ns;
    while (read_counter(&arguments.state->combined) < epoch && global_timer_ns() < give_up_ns) {
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

// Of a CTA that takes a token: vectors of so many choices are on their way at a time.
constexpr u32 kChoicesAtOnce = 8;

// Any grid; a CTA takes whole tokens, a thread 8 columns at a time.
extern "C" __global__ void __launch_bounds__(256) reduce_combine(const __grid_constant__ ReduceArguments arguments) {
    if (arguments.words != nullptr) {
        if (threadIdx.x == 0) {
            if (blockIdx.x == 0) {
                await_senders(arguments);
            } else {
                await_first_cta(arguments);
            }
        }
        __syncthreads();
    }
    const u32 vectors = arguments.hidden / 8;
    for (u32 token = blockIdx.x; token < arguments.tokens; token += gridDim.x) {
        const u64 first = static_cast<u64>(token) * arguments.top_k;
        for (u32 vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
            float sum[4][2] = {};
            for (u32 begin = 0; begin < arguments.top_k; begin += kChoicesAtOnce) {
                const u32 choices = min(kChoicesAtOnce, arguments.top_k - begin);
                uint4 rows[kChoicesAtOnce];
                float weights[kChoicesAtOnce];
#pragma unroll
                for (u32 i = 0; i < kChoicesAtOnce; ++i) {
                    if (i < choices) {
                        rows[i] = load_streamed(arguments.combined + ((first + begin + i) * vectors + vector) * 16);
                        weights[i] = arguments.weights[first + begin + i];
                    }
                }
#pragma unroll
                for (u32 i = 0; i < kChoicesAtOnce; ++i) {
                    if (i < choices) {
                        add_weighted(sum[0], rows[i].x, weights[i]);
                        add_weighted(sum[1], rows[i].y, weights[i]);
                        add_weighted(sum[2], rows[i].z, weights[i]);
                        add_weighted(sum[3], rows[i].w, weights[i]);
                    }
                }
            }
            *reinterpret_cast<uint4*>(arguments.output + (static_cast<u64>(token) * vectors + vector) * 16) =
                make_uint4(pack_bf16(sum[0][0], sum[0][1]), pack_bf16(sum[1][0], sum[1][1]),
                           pack_bf16(sum[2][0], sum[2][1]), pack_bf16(sum[3][0], sum[3][1]));
        }
    }
}
