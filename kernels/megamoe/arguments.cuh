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

// A wait that ran out. The first of a launch is kept; the launch goes on without waiting, to its end.
struct MoeFault {
    u32 raised;
    u32 rank;
    u32 row;
    u32 expected;
    u32 seen;
    u32 cta;
    u64 timeout_ns;
};
static_assert(sizeof(MoeFault) == 32);

// Of one rank; zero before the first launch, and again when a launch ends.
struct LaunchState {
    u32 ticket;    // the next one
    u32 finished;  // CTAs
};
static_assert(sizeof(LaunchState) == 8);

struct MoeArguments {
    TensorMap tokens;        // [pool rows, hidden]: a box is the rows of a tile
    TensorMap weights1;      // [experts, 2, intermediate, hidden], gate then up: a box is half a tile of either
    TensorMap activations;   // [pool rows, intermediate], read by Linear-2
    TensorMap swiglu;        // the same, as Linear-1 writes it
    TensorMap weights2;      // [experts, hidden, intermediate]
    SchedulerParameters scheduler;
    char* destination[kMaxRanks];  // rank's buffer, [tokens, top_k, hidden] bf16
    const RowSource* sources;      // [pool rows]
    u32* counters;                 // [rows] Linear-1 tiles stored; zero before and after a launch
    LaunchState* state;
    MoeFault* fault;
    LaneRecord* lanes;  // [CTAs, lanes], of a recording variant
    SpanRecord* spans;  // as lanes, of each span_capacity
    u64 timeout_ns;
    u32 hidden;
    u32 intermediate;
    u32 rank;
    u32 pace;  // 64ths of the next mainloop that a part's stores are spread over; 0: all at once
    u32 span_capacity;
    u32 withheld_row;  // of a test of the deadlines: its Linear-1 is never announced; kNone otherwise
};
static_assert(sizeof(MoeArguments) == 896);

}  // namespace xstage::megamoe
