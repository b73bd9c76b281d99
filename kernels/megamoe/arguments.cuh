// What a launch of the fused MoE layer is given; the same in numpy: xstage_tune.cuda.moe_arguments.
#pragma once

#include "common/span.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "megamoe/scheduler.cuh"

namespace xstage::megamoe {

constexpr u32 kMaxRanks = 8;

// Whose token a row of the pool is, and which of its experts this is: `slot` is token * top_k + choice.
struct RowSource {
    u32 rank;
    u32 slot;
};
static_assert(sizeof(RowSource) == 8);

// A token of a rank and the pool's rows that are copies of it: `first_row` is the place of the first in a list.
struct Pull {
    u32 rank;
    u32 token;
    u32 first_row;
    u32 rows;
};
static_assert(sizeof(Pull) == 16);

// What a wait that ran out was for; the numbers are those of the host's messages.
// The last two are no waits, but what ends a launch likewise: a choice that is no expert, rows beyond the pool.
enum class Wait : u32 { linear1 = 1, arrival = 2, source = 3, combine = 4, choice = 5, pool = 6 };

// A wait that ran out. The first of a launch is kept; the launch goes on without waiting, to its end.
struct MoeFault {
    u32 raised;
    u32 wait;
    u32 rank;  // that is waited for
    u32 row;   // of tiles; of a rank's word none
    u32 expected;
    u32 seen;
    u32 cta;
    u32 padding;
    u64 timeout_ns;
};
static_assert(sizeof(MoeFault) == 40);

// Of one rank; tickets and finished CTAs are zero before the first launch, and again when a launch ends.
struct LaunchState {
    u32 ticket;    // the next one
    u32 finished;  // CTAs
    u32 epoch;     // launches that have ended
    u32 combined;  // launches whose rows have come from all ranks, as the reduction behind them has seen
};
static_assert(sizeof(LaunchState) == 16);

struct MoeArguments {
    // Elements are of the layer's format. With e4m3 come scales in fp32, without it they are null; a block is of 128.
    TensorMap tokens;        // [pool rows, hidden]: a box is the rows of a tile
    TensorMap weights1;      // [experts, 2, intermediate, hidden], gate then up: a box is half a tile of either
    TensorMap activations;   // [pool rows, intermediate], read by Linear-2
    TensorMap swiglu;        // the same, as Linear-1 writes it
    TensorMap weights2;      // [experts, hidden, intermediate]
    SchedulerParameters scheduler;
    char* destination[kMaxRanks];  // rank's buffer, [tokens, top_k, hidden] bf16
    u32* signal[kMaxRanks];        // rank's word for this sender: launches whose rows have arrived; or null
    const char* origin[kMaxRanks];  // rank's tokens, [tokens, hidden]
    const char* origin_scales[kMaxRanks];  // theirs, [tokens, blocks of hidden, up to a multiple of 4]
    const u32* ready[kMaxRanks];    // rank's word: launches whose tokens are there
    const Pull* pulls;             // [pull_count] in the order of the first row of tiles that each has a part in
    const u32* pull_rows;          // of the pool, pull by pull
    char* pool;                    // [pool rows, hidden]: what `tokens` describes
    float* token_scales;           // [blocks of hidden, pool rows]
    float* activation_scales;      // [blocks of intermediate, pool rows], written by Linear-1
    const float* weight_scales1;   // [experts, 2, blocks of intermediate, blocks of hidden]
    const float* weight_scales2;   // [experts, blocks of hidden, blocks of intermediate]
    u32* arrivals;                 // [rows] pool rows that have come; zero before and after a launch
    const RowSource* sources;      // [pool rows]
    u32* counters;                 // [rows] Linear-1 tiles stored; zero before and after a launch
    LaunchState* state;
    MoeFault* fault;
    LaneRecord* lanes;  // [CTAs, lanes], of a recording variant
    SpanRecord* spans;  // as lanes, of each span_capacity
    const u32* counted_pulls;  // how many there are, where that is found on the GPU; else null
    u64 timeout_ns;
    u32 hidden;
    u32 intermediate;
    u32 rank;
    u32 pace;  // 64ths of the next mainloop that a part's stores are spread over; 0: all at once
    u32 span_capacity;
    u32 pull_count;
    u32 pool_rows;
    u32 withheld_row;  // of a test of the deadlines: its Linear-1 is never announced; kNone otherwise
};
static_assert(sizeof(MoeArguments) == 1024 + 192);

}  // namespace xstage::megamoe
