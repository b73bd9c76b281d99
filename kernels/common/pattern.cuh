// The bytes that producers store and owners expect: one 4 KiB piece, repeated through a burst.
//
// Word w of a piece holds nonce + w, except word 0, which holds the burst's number. The nonce is new for every
// launch, so whatever an earlier launch left is a mismatch, as is the poison of a fresh allocation; the number
// tells the laps of the ring apart. The same in numpy: xstage_tune.cuda.pattern.
#pragma once

#include "common/types.cuh"

namespace xstage {

constexpr u32 kPieceBytes = 4096;
constexpr u32 kVectorBytes = 16;

__device__ __forceinline__ uint4 pattern_vector(u32 nonce, u32 vector_in_piece, u32 burst) {
    const u32 word = nonce + 4 * vector_in_piece;
    return make_uint4(vector_in_piece == 0 ? burst : word, word + 1, word + 2, word + 3);
}

}  // namespace xstage
