// The number formats of a layer's operands.
//
//   bf16  tokens, weights and activations
//   e4m3  the same, each number times a scale in fp32: one for every 128 of a token's or a row of activations' columns,
//         one for every block of 128x128 of an expert's weights. Along the depth a block's last may be shorter.
//
// Products are summed in fp32 in both, and what is sent to the ranks is bf16.
#pragma once

#include "common/types.cuh"

namespace xstage::megamoe {

enum class Format { bf16, e4m3 };
constexpr Format kFormat = FORMAT == 0 ? Format::bf16 : Format::e4m3;

constexpr bool kScaled = kFormat == Format::e4m3;
constexpr u32 kElementBytes = kScaled ? 1 : 2;
constexpr u32 kScaleBlock = 128;  // elements
constexpr float kLargestE4m3 = 448.0f;

__device__ __forceinline__ u32 scale_blocks(u32 elements) { return (elements + kScaleBlock - 1) / kScaleBlock; }

// Of a token's scales at its rank: whole units of 16 bytes.
__device__ __forceinline__ u32 scale_row_bytes(u32 hidden) { return (scale_blocks(hidden) + 3) / 4 * 16; }

}  // namespace xstage::megamoe
