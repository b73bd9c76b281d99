// What a launch is given; the same in numpy: xstage_tune.cuda.attention_arguments.
#pragma once

#include "common/span.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"

namespace xstage {

constexpr u32 kMaxRanks = 8;

// Why an exchange can go on no more.
enum class Fault : u32 {
    late = 1,     // a sender did not signal its epoch in time
    foreign = 2,  // a sender's word is none that it can have come to
    overlap = 3,  // two launches at once: of two streams, or of graphs that nobody ordered
};

// What the host reads while the GPU works, in pinned memory. Zero while there is no fault.
struct FaultRecord {
    u32 raised;  // a Fault; written last
    u32 rank;    // whose word it is
    u32 expected;
    u32 seen;
    u64 timeout_ns;
};
static_assert(sizeof(FaultRecord) == 24);

// Of one rank and all buffers and words that it shares with the others, in its own memory. Zero before the first
// launch, but for `record`. Everything that differs from call to call is here, so that a captured launch can be
// replayed among others.
struct Exchange {
    u32 epoch;     // of the last call that is over; the one that goes on is the next
    u32 arrived;   // CTAs of the current launch that have stored all of their tiles
    u32 received;  // CTAs of the current launch that have received their part
    u32 holder;    // number of the call that goes on; 0: none
    u32 fault;     // a Fault; from then on nothing is stored or signalled
    u32 padding;
    FaultRecord* record;
};
static_assert(sizeof(Exchange) == 32);

// What `complete` asks of a launch.
enum class Completion : u16 {
    none = 0,
    signal = 1,            // fence and signal at the end; the call is over
    signal_and_receive = 2,  // the call goes on until this rank's tokens are received
};

// How this rank's tokens are received: all ranks' rows of them, once all have signalled.
struct Receipt {
    const u32* words;     // [ranks] one of every sender, in this GPU's memory
    const char* buffers;  // of this rank: that of the even epochs; the odd ones' is at `epoch_bytes` from it
    uint4* output;        // where they are copied to
    u64 timeout_ns;
    u32 vectors;  // 16 bytes each; 0 only waits
    u32 ranks;
    u32 ctas;     // that receive
    u32 padding;
};
static_assert(sizeof(Receipt) == 48);

struct AttentionArguments {
    TensorMap query;  // tensors [heads, chunks, tokens, 64]: a box is one warpgroup's rows, or one KV tile
    TensorMap key;
    TensorMap value;
    TensorMap output[kMaxRanks];    // [epochs, heads, chunks, rank's tokens, 64]; for tensor copies
    char* destination[kMaxRanks];   // rank's buffer, from this rank's first head on
    u32* signal[kMaxRanks];         // rank's word for this sender: the number of epochs that have arrived
    Exchange* exchange;             // null: no completion, and always the first buffer of a rank
    LaneRecord* lanes;              // [CTAs, consumers that finish rows], of a recording variant
    SpanRecord* spans;              // as lanes, of each span_capacity
    float* lse;                     // [heads, tokens], of a variant that writes it
    u64 epoch_bytes;                // from a rank's even buffer to its odd one
    Receipt receipt;                // by the CTAs behind those that compute
    u32 tokens;                     // M, of the queries
    u32 kv_tokens;
    u32 heads;                      // of this rank
    u32 ranks;
    u32 rank;
    u32 call;  // a number that no other call of the exchange under way has; 0: may run beside others
    u32 ctas;  // that compute
    u16 tile_order;
    Completion complete;
    u32 token_bytes;   // from token to token in a rank's buffer: all heads
    float scale_log2;  // softmax scale times log2(e)
    u32 span_capacity;
    u32 padding[15];
};
static_assert(sizeof(AttentionArguments) == 1728);

}  // namespace xstage
