// The All-to-All apart from the attention: what the fused kernel is compared with.
#include "attention_a2a/arguments.cuh"
#include "common/store.cuh"

namespace xstage {

struct SerialArguments {
    const uint4* source;
    char* destination[kMaxRanks];
    u32 tokens;
    u32 ranks;
    u32 rank;
    u32 rows_per_rank;
    u32 vectors;      // 16-byte vectors of a token's local heads
    u32 token_bytes;  // from token to token in a rank's buffer: all heads
};
static_assert(sizeof(SerialArguments) == 96);

struct Move {
    const uint4* from;  // null: nothing to move
    char* to;
};

constexpr u32 kSerialThreads = 256;  // of a CTA
constexpr u32 kInFlight = 4;         // vectors that a thread loads before it stores them

// Moves vectors 0 to count - 1, neighbours by neighbouring threads; `move` says from where to where.
template <typename MoveOf>
__device__ __forceinline__ void move_vectors(u32 count, const MoveOf& move) {
    const u32 stride = gridDim.x * kSerialThreads;
    for (u32 first = blockIdx.x * kSerialThreads + threadIdx.x; first < count; first += kInFlight * stride) {
        Move moves[kInFlight];
        uint4 values[kInFlight];
#pragma unroll
        for (u32 i = 0; i < kInFlight; ++i) {
            const u32 vector = first + i * stride;
            moves[i] = vector < count ? move(vector) : Move{};
            if (moves[i].from != nullptr) {
                values[i] = *moves[i].from;
            }
        }
#pragma unroll
        for (u32 i = 0; i < kInFlight; ++i) {
            if (moves[i].from != nullptr) {
                store_v4(moves[i].to, values[i]);
            }
        }
    }
}

}  // namespace xstage

using namespace xstage;

// Every token's rows, from `source` [tokens, heads, head_dim], to the rank that owns the token. `destination`: each
// rank's buffer from this rank's first head on. Neighbouring tokens go to different ranks, from the next rank on, so
// that all links are busy at once and senders do not meet at one rank.
extern "C" __global__ void __launch_bounds__(kSerialThreads)
    store_to_ranks(const __grid_constant__ SerialArguments arguments) {
    move_vectors(arguments.rows_per_rank * arguments.ranks * arguments.vectors, [&](u32 vector) -> Move {
        const u32 place = vector / arguments.vectors;
        const u32 in_token = vector - place * arguments.vectors;
        const u32 row = place / arguments.ranks;
        const u32 rank = (place - row * arguments.ranks + arguments.rank + 1) % arguments.ranks;
        const u32 token = rank * arguments.rows_per_rank + row;
        if (token >= arguments.tokens) {
            return {};
        }
        return {arguments.source + static_cast<u64>(token) * arguments.vectors + in_token,
                arguments.destination[rank] + static_cast<u64>(row) * arguments.token_bytes + in_token * 16};
    });
}

// From what a collective leaves, `source` [ranks, tokens, heads, head_dim], to `destination[0]`
// [tokens, ranks, heads, head_dim]. `tokens` are those of this rank.
extern "C" __global__ void __launch_bounds__(kSerialThreads)
    permute_received(const __grid_constant__ SerialArguments arguments) {
    move_vectors(arguments.tokens * arguments.ranks * arguments.vectors, [&](u32 vector) -> Move {
        const u32 place = vector / arguments.vectors;
        const u32 in_token = vector - place * arguments.vectors;
        const u32 token = place / arguments.ranks;
        const u32 sender = place - token * arguments.ranks;
        return {arguments.source + static_cast<u64>(sender * arguments.tokens + token) * arguments.vectors + in_token,
                arguments.destination[0] + static_cast<u64>(vector) * 16};
    });
}
