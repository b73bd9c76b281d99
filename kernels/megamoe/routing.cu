// What comes before a launch over ranks whose routing nobody knew beforehand: this rank's tokens are put where all ranks
// can read them, and from all ranks' choices the launch's tables are found, on the GPU.
//
//   publish_tokens  this rank's tokens, quantised with e4m3, for all ranks to read; its choices to all of them
//   count_rows      waits for all ranks' choices; of each local expert how many rows it has
//   place_rows      each row's place in the pool, each pull
//   list_pulls      the rows of each pull
//   settle          behind the reduction: after a fault, NaNs in place of the result, and the fault for the host
//
// Rows of an expert come by rank, token and choice, so a launch on equal inputs has equal tables.
//
// One set of buffers a rank is enough. A rank publishes behind its last reduction, which waited for all ranks' signals;
// those come behind all that the ranks' launches read of its tokens, and behind what they stored to it. And no rank
// stores to it, or reads its choices, before it has published again, since place_rows comes behind count_rows.
//
// After a fault nothing is published or signalled any more, here or by the launch, so that no rank takes old rows for
// new ones; tables are empty.
#include "common/signal.cuh"
#include "common/store.cuh"
#include "common/warpgroup.cuh"
#include "megamoe/format.cuh"
#include "megamoe/row_wait.cuh"
#include "megamoe/scales.cuh"

namespace xstage::megamoe {

struct RoutingArguments {
    const char* tokens;       // [count, hidden] bf16, or e4m3 with scales, of this call
    const float* token_scales;  // [count, blocks of hidden] of e4m3; null of bf16
    const char* choices;      // [count, top_k] numbers of experts, of choice_bytes each
    char* published;          // [most tokens, hidden] of the layer's format, for all ranks to read
    float* published_scales;  // [most tokens, blocks of hidden, up to a multiple of 4]
    const u32* all_choices;   // [ranks, most tokens, top_k] of all ranks, in this one's memory: all of them are read
    const u32* all_counts;    // [ranks] tokens; by one CTA an expert
    u32* told_choices[kMaxRanks];  // each rank's place for this rank's
    u32* told_counts[kMaxRanks];
    u32* announcements[kMaxRanks];  // each rank's word of this rank
    const u32* words;               // [ranks] of this rank: launches for which each rank's tokens are there
    LaunchState* state;
    MoeFault* fault;
    MoeFault* record;  // the same in the host's memory
    u32* finished;     // CTAs that have published
    u32* counts;       // [experts] rows, before they are known to fit
    u32* firsts;       // [experts] rows that are their token's first
    u32* tokens_per_expert;  // [experts]
    u32* first_row;          // [experts + 1] of tiles
    u32* pull_count;
    RowSource* sources;  // [pool rows]
    u32* row_of;         // [ranks, most tokens, top_k] of the pool
    Pull* pulls;         // [ranks * most tokens]
    u32* pull_rows;      // [ranks * most tokens, top_k]
    char* output;        // [count, hidden] bf16
    u64 timeout_ns;
    u32 count;
    u32 most_tokens;
    u32 top_k;
    u32 hidden;
    u32 experts;      // local ones
    u32 all_experts;
    u32 rank;
    u32 ranks;
    u32 block_m;
    u32 pool_rows;
    u32 choice_bytes;  // 4 or 8
    u32 padding;
};
static_assert(sizeof(RoutingArguments) == 8 * 47 + 4 * 12);

constexpr u32 kRoutingThreads = 512;
constexpr u32 kPublishThreads = 256;
constexpr u32 kChoicesAtOnce = 16;  // of a thread
constexpr u32 kColumns = 4;        // of a lane
static_assert(kColumns * kWarpThreads == kScaleBlock);
constexpr u32 kRoutingWarps = kRoutingThreads / kWarpThreads;
constexpr float kLeastMaximum = 1e-30f;  // of a row of zeros

__device__ __forceinline__ u32 launch_of(const RoutingArguments& arguments) {
    return *static_cast<volatile u32*>(&arguments.state->epoch) + 1;
}

// A warp has 128 columns of a token.
__device__ __forceinline__ void publish_block(const RoutingArguments& arguments, u32 token, u32 block) {
    const u32 lane = threadIdx.x % kWarpThreads;
    const u32 column = block * kScaleBlock + lane * kColumns;
    const bool exists = column < arguments.hidden;
    const u64 element = static_cast<u64>(token) * arguments.hidden + column;
    const u32 stride = scale_row_bytes(arguments.hidden) / sizeof(float);
    float* scale = arguments.published_scales + static_cast<u64>(token) * stride + block;
    if (kScaled && arguments.token_scales != nullptr) {
        if (exists) {
            *reinterpret_cast<u32*>(arguments.published + element) =
                *reinterpret_cast<const u32*>(arguments.tokens + element);
        }
        if (lane == 0) {
            *scale = arguments.token_scales[static_cast<u64>(token) * scale_blocks(arguments.hidden) + block];
        }
        return;
    }
    const uint2 words = exists ? *reinterpret_cast<const uint2*>(arguments.tokens + element * 2) : make_uint2(0, 0);
    char* to = arguments.published + element * kElementBytes;
    if (!kScaled) {
        if (exists) {
            *reinterpret_cast<uint2*>(to) = words;
        }
        return;
    }
    const float values[kColumns] = {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u),
                                    __uint_as_float(words.y << 16), __uint_as_float(words.y & 0xffff0000u)};
    float largest = kLeastMaximum;
#pragma unroll
    for (const float value : values) {
        largest = fmaxf(largest, fabsf(value));
    }
#pragma unroll
    for (u32 mask = kWarpThreads / 2; mask != 0; mask /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
    }
    const float factor = kLargestE4m3 / largest;
    if (exists) {
        *reinterpret_cast<u32*>(to) = pack_e4m3(values[0] * factor, values[1] * factor) |
                                      static_cast<u32>(pack_e4m3(values[2] * factor, values[3] * factor)) << 16;
    }
    if (lane == 0) {
        *scale = largest / kLargestE4m3;
    }
}

// A choice out of range, whatever its width, stays one.
__device__ __forceinline__ u32 choice_at(const RoutingArguments& arguments, u64 at) {
    if (arguments.choice_bytes == 4) {
        return reinterpret_cast<const u32*>(arguments.choices)[at];
    }
    const u64 wide = reinterpret_cast<const u64*>(arguments.choices)[at];
    return wide < kNone ? static_cast<u32>(wide) : kNone;
}

// Those of a rank's tokens.
__device__ __forceinline__ const u32* choices_of(const RoutingArguments& arguments, u32 rank) {
    return arguments.all_choices + static_cast<u64>(rank) * arguments.most_tokens * arguments.top_k;
}

// The local expert of a choice; kNone of another rank's.
__device__ __forceinline__ u32 local_expert(const RoutingArguments& arguments, u32 choice) {
    const u32 local = choice - arguments.rank * arguments.experts;
    return local < arguments.experts ? local : kNone;
}

// Whether the choice is the one by which its token is pulled: the lowest local expert, of equal ones the first.
__device__ __forceinline__ bool is_first(const RoutingArguments& arguments, const u32* of_token, u32 choice) {
    const u32 mine = local_expert(arguments, of_token[choice]);
    for (u32 other = 0; other < arguments.top_k; ++other) {
        const u32 theirs = local_expert(arguments, of_token[other]);
        if (theirs < mine || (theirs == mine && other < choice)) {
            return false;
        }
    }
    return true;
}

// Sums over the CTA, for all its threads.
__device__ __forceinline__ u32 sum_of_cta(u32 value, u32* shared) {
    for (u32 mask = kWarpThreads / 2; mask != 0; mask /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, mask);
    }
    __syncthreads();
    if (threadIdx.x % kWarpThreads == 0) {
        shared[threadIdx.x / kWarpThreads] = value;
    }
    __syncthreads();
    u32 sum = 0;
    for (u32 warp = 0; warp < kRoutingWarps; ++warp) {
        sum += shared[warp];
    }
    return sum;
}

// The sum of the threads before, and of all: two numbers, each in half of a word.
__device__ __forceinline__ u32 sum_before(u32 value, u32* shared, u32& all) {
    const u32 lane = threadIdx.x % kWarpThreads;
    u32 upto = value;
#pragma unroll
    for (u32 distance = 1; distance < kWarpThreads; distance *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, upto, distance);
        upto += lane >= distance ? other : 0;
    }
    __syncthreads();
    if (lane == kWarpThreads - 1) {
        shared[threadIdx.x / kWarpThreads] = upto;
    }
    __syncthreads();
    u32 before = upto - value;
    all = 0;
    for (u32 warp = 0; warp < kRoutingWarps; ++warp) {
        before += warp < threadIdx.x / kWarpThreads ? shared[warp] : 0;
        all += shared[warp];
    }
    return before;
}

// Each by a thread.
__device__ __forceinline__ void await_rank(const RoutingArguments& arguments, u32 rank) {
    const u32 launch = launch_of(arguments);
    const u64 give_up_ns = global_timer_ns() + arguments.timeout_ns;
    u32 seen = load_acquire_system(&arguments.words[rank]);
    while (seen < launch && !has_failed(arguments.fault) && global_timer_ns() < give_up_ns) {
        seen = load_acquire_system(&arguments.words[rank]);
    }
    if (seen < launch) {
        raise_fault(arguments.fault, Wait::source, rank, kNone, launch, seen, arguments.timeout_ns);
    }
}

}  // namespace xstage::megamoe

using namespace xstage;
using namespace xstage::megamoe;

extern "C" __global__ void __launch_bounds__(kPublishThreads)
    publish_tokens(const __grid_constant__ RoutingArguments arguments) {
    const u32 warps = gridDim.x * (kPublishThreads / kWarpThreads);
    const u32 blocks = scale_blocks(arguments.hidden);
    const u32 thread = blockIdx.x * kPublishThreads + threadIdx.x;
    for (u64 at = thread / kWarpThreads; at < static_cast<u64>(arguments.count) * blocks; at += warps) {
        const u32 token = static_cast<u32>(at / blocks);
        publish_block(arguments, token, static_cast<u32>(at - static_cast<u64>(token) * blocks));
    }
    const u64 choices = static_cast<u64>(arguments.count) * arguments.top_k;
    for (u64 at = thread; at < choices; at += gridDim.x * kPublishThreads) {
        const u32 choice = choice_at(arguments, at);
        for (u32 rank = 0; rank < arguments.ranks; ++rank) {
            arguments.told_choices[rank][at] = choice;
        }
    }
    if (thread < arguments.ranks) {
        *arguments.told_counts[thread] = arguments.count;
    }
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    fence_system();
    if (fetch_add_gpu(arguments.finished, 1) + 1 != gridDim.x) {
        return;
    }
    *arguments.finished = 0;
    const u32 launch = launch_of(arguments);
    if (has_failed(arguments.fault)) {
        return;
    }
    for (u32 rank = 0; rank < arguments.ranks; ++rank) {
        store_release_system(arguments.announcements[rank], launch);
    }
}

// A CTA has every gridDim-th expert.
extern "C" __global__ void __launch_bounds__(kRoutingThreads)
    count_rows(const __grid_constant__ RoutingArguments arguments) {
    __shared__ u32 sums[kRoutingWarps];
    if (threadIdx.x < arguments.ranks) {
        await_rank(arguments, threadIdx.x);
    }
    if (__syncthreads_or(has_failed(arguments.fault))) {
        return;
    }
    for (u32 expert = blockIdx.x; expert < arguments.experts; expert += gridDim.x) {
        u32 rows = 0, firsts = 0;
        for (u32 rank = 0; rank < arguments.ranks; ++rank) {
            const u32* choices = choices_of(arguments, rank);
            const u32 count = arguments.all_counts[rank] * arguments.top_k;
            for (u32 at = threadIdx.x; at < count; at += kRoutingThreads) {
                const u32 choice = choices[at];
                if (choice >= arguments.all_experts && blockIdx.x == 0) {
                    raise_fault(arguments.fault, Wait::choice, rank, at / arguments.top_k, arguments.all_experts,
                                choice, arguments.timeout_ns);
                }
                if (local_expert(arguments, choice) == expert) {
                    const u32 first = at / arguments.top_k * arguments.top_k;
                    rows += 1;
                    firsts += is_first(arguments, choices + first, at - first) ? 1 : 0;
                }
            }
        }
        rows = sum_of_cta(rows, sums);
        firsts = sum_of_cta(firsts, sums);
        if (threadIdx.x == 0) {
            arguments.counts[expert] = rows;
            arguments.firsts[expert] = firsts;
        }
    }
}

extern "C" __global__ void __launch_bounds__(kRoutingThreads)
    place_rows(const __grid_constant__ RoutingArguments arguments) {
    __shared__ u32 sums[kRoutingWarps];
    u32 all_tiles = 0;
    const bool failed = has_failed(arguments.fault);
    for (u32 other = threadIdx.x; other < arguments.experts; other += kRoutingThreads) {
        all_tiles += (arguments.counts[other] + arguments.block_m - 1) / arguments.block_m;
    }
    all_tiles = sum_of_cta(all_tiles, sums);
    const bool fits = all_tiles <= arguments.pool_rows / arguments.block_m;
    if (!failed && !fits && blockIdx.x == 0 && threadIdx.x == 0) {
        raise_fault(arguments.fault, Wait::pool, arguments.rank, kNone, arguments.pool_rows,
                    all_tiles * arguments.block_m, arguments.timeout_ns);
    }
    const bool empty = __syncthreads_or(failed) || !fits;
    for (u32 expert = blockIdx.x; expert < arguments.experts; expert += gridDim.x) {
        u32 tiles = 0, pulls = 0;
        for (u32 other = threadIdx.x; other < expert; other += kRoutingThreads) {
            tiles += (arguments.counts[other] + arguments.block_m - 1) / arguments.block_m;
            pulls += arguments.firsts[other];
        }
        tiles = sum_of_cta(tiles, sums);
        pulls = sum_of_cta(pulls, sums);
        if (threadIdx.x == 0) {
            arguments.tokens_per_expert[expert] = empty ? 0 : arguments.counts[expert];
            arguments.first_row[expert] = empty ? 0 : tiles;
            if (expert + 1 == arguments.experts) {
                arguments.first_row[expert + 1] = empty ? 0 : all_tiles;
                *arguments.pull_count = empty ? 0 : pulls + arguments.firsts[expert];
            }
        }
        if (empty) {
            continue;
        }
        u32 row = tiles * arguments.block_m;
        for (u32 rank = 0; rank < arguments.ranks; ++rank) {
            const u32* choices = choices_of(arguments, rank);
            const u32 count = arguments.all_counts[rank] * arguments.top_k;
            for (u32 begin = 0; begin < count; begin += kChoicesAtOnce * kRoutingThreads) {
                const u32 mine = begin + kChoicesAtOnce * threadIdx.x;
                u32 chosen = 0, first = 0;  // bits
#pragma unroll
                for (u32 i = 0; i < kChoicesAtOnce; ++i) {
                    const u32 at = mine + i;
                    if (at < count && local_expert(arguments, choices[at]) == expert) {
                        const u32 of_token = at / arguments.top_k * arguments.top_k;
                        chosen |= 1u << i;
                        first |= is_first(arguments, choices + of_token, at - of_token) ? 1u << i : 0;
                    }
                }
                u32 all;
                const u32 before = sum_before(__popc(chosen) | __popc(first) << 16, sums, all);
                u32 my_row = row + (before & 0xffff), my_pull = pulls + (before >> 16);
#pragma unroll
                for (u32 i = 0; i < kChoicesAtOnce; ++i) {
                    if ((chosen >> i & 1) == 0) {
                        continue;
                    }
                    const u32 at = mine + i;
                    const u32 token = at / arguments.top_k;
                    arguments.sources[my_row] = {rank, at};
                    arguments.row_of[static_cast<u64>(rank) * arguments.most_tokens * arguments.top_k + at] = my_row;
                    if (first >> i & 1) {
                        u32 rows = 0;
                        for (u32 other = 0; other < arguments.top_k; ++other) {
                            rows += local_expert(arguments, choices[token * arguments.top_k + other]) != kNone;
                        }
                        arguments.pulls[my_pull] = {rank, token, my_pull * arguments.top_k, rows};
                        ++my_pull;
                    }
                    ++my_row;
                }
                row += all & 0xffff;
                pulls += all >> 16;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(kPublishThreads)
    list_pulls(const __grid_constant__ RoutingArguments arguments) {
    const u32 pulls = *arguments.pull_count;
    const u32 step = gridDim.x * kPublishThreads;
    for (u32 number = blockIdx.x * kPublishThreads + threadIdx.x; number < pulls; number += step) {
        const Pull pull = arguments.pulls[number];
        const u64 of_token = static_cast<u64>(pull.token) * arguments.top_k;
        const u32* choices = choices_of(arguments, pull.rank) + of_token;
        const u32* rows =
            arguments.row_of + static_cast<u64>(pull.rank) * arguments.most_tokens * arguments.top_k + of_token;
        u32* to = arguments.pull_rows + pull.first_row;
        for (u32 choice = 0; choice < arguments.top_k; ++choice) {
            if (local_expert(arguments, choices[choice]) != kNone) {
                *to++ = rows[choice];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(kPublishThreads)
    settle(const __grid_constant__ RoutingArguments arguments) {
    if (!has_failed(arguments.fault)) {
        return;
    }
    const u64 numbers = static_cast<u64>(arguments.count) * arguments.hidden;
    for (u64 at = static_cast<u64>(blockIdx.x) * kPublishThreads + threadIdx.x; at < numbers;
         at += gridDim.x * kPublishThreads) {
        reinterpret_cast<u16*>(arguments.output)[at] = 0x7fff;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0 && arguments.record->raised == 0) {
        MoeFault fault = *arguments.fault;
        fault.raised = 0;
        *arguments.record = fault;
        fence_system();
        store_relaxed_system(&arguments.record->raised, 1);
    }
}
