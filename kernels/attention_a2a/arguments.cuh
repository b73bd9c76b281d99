// What a launch is given; the same in numpy: xstage_tune.cuda.attention_arguments.
#pragma once

#include "common/span.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"

namespace xstage {

constexpr u32 kMaxRanks = 8;

// Of one sender, in its own memory; zero before the first launch.
struct EpochState {
    u32 epoch;    // completed and signalled
    u32 arrived;  // CTAs of the current launch that have stored all of their tiles
};
static_assert(sizeof(EpochState) == 8);

struct AttentionArguments {
    TensorMap query;  // tensors [heads, chunks, tokens, 64]: a box is one warpgroup's rows, or one KV tile
    TensorMap key;
    TensorMap value;
    TensorMap output[kMaxRanks];    // [epochs, heads, chunks, rank's tokens, 64]; for tensor copies
    char* destination[kMaxRanks];   // rank's buffer, from this rank's first head on
    u32* signal[kMaxRanks];         // rank's word for this sender: the number of epochs that have arrived
    EpochState* epochs;             // null: no completion, and always the first buffer of a rank
    LaneRecord* lanes;              // [CTAs, consumers that finish rows], of a recording variant
    SpanRecord* spans;              // as lanes, of each span_capacity
    u64 epoch_bytes;                // from a rank's even buffer to its odd one
    u32 tokens;                     // M
    u32 heads;                      // of this rank
    u32 ranks;
    u32 rank;
    u16 tile_order;
    u16 complete;     // 1: fence and signal at the end
    u32 token_bytes;  // from token to token in a rank's buffer: all heads
    float scale_log2;  // softmax scale times log2(e)
    u32 span_capacity;
};
static_assert(sizeof(AttentionArguments) == 1600);

}  // namespace xstage
