// Tiles of 128-byte rows (64 bf16 elements) in shared memory, 128-byte swizzled: 16-byte vector v of row r lies at
// place v ^ (r % 8). Tensor copies and matrix products address them alike.
#pragma once

#include "common/types.cuh"

namespace xstage {

constexpr u32 kSwizzleRowBytes = 128;
constexpr u32 kSwizzleAtomBytes = 8 * kSwizzleRowBytes;  // the pattern repeats after 8 rows
constexpr u32 kSwizzleRowElements = kSwizzleRowBytes / 2;
constexpr u32 kProductDepth = 16;

// Descriptor of an operand at `address` (1,024-byte aligned, or a step within the first rows of such a tile).
// `leading_bytes`: from one column of swizzle atoms to the next; operands whose reduction runs along the rows
// do not use it. Atoms follow each other along the rows of the tile.
__device__ __forceinline__ u64 swizzled_operand(u32 address, u32 leading_bytes) {
    constexpr u64 kSwizzle128 = 1ull << 62;
    constexpr u64 kStride = static_cast<u64>(kSwizzleAtomBytes >> 4) << 32;
    return kSwizzle128 | kStride | static_cast<u64>(leading_bytes >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// The operand `bytes` further on (a multiple of 16).
__device__ __forceinline__ u64 operand_at(u64 operand, u32 bytes) { return operand + (bytes >> 4); }

}  // namespace xstage
