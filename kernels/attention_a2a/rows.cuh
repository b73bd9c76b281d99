// Rows of finished tiles: where they are staged in shared memory, and where they belong.
#pragma once

#include "attention_a2a/admission.cuh"
#include "attention_a2a/arguments.cuh"
#include "attention_a2a/config.cuh"
#include "attention_a2a/team.cuh"
#include "common/store.cuh"

namespace xstage {

constexpr u32 kRowVectors = kRowBytes / 16;
constexpr u32 kRowsAtOnce = kWarpThreads / kRowVectors;  // that a warp stores with one instruction, whole

// A warpgroup's 64 rows are staged as tiles of 128-byte rows, 128-byte swizzled, which both threads and tensor copies
// get at without bank conflicts. Address of 16 bytes of a row.
__device__ __forceinline__ u32 staged_vector(const char* slot, u32 row, u32 vector) {
    constexpr u32 kVectors = kSwizzleRowBytes / 16;
    return shared_address(slot) + vector / kVectors * (kWarpgroupRows * kSwizzleRowBytes) + row * kSwizzleRowBytes +
           ((vector % kVectors) ^ (row % 8)) * 16;
}

// Place of a warpgroup's rows of the `index`-th tile of this CTA.
__device__ __forceinline__ char* staging_slot(char* shared, u32 consumer, u32 index) {
    const u32 slot = kStagingSlots == 2 ? index % 2 : 0;
    return shared + kStagingOffset + (slot * kFinishers + finisher_of(consumer)) * kWarpgroupTileBytes;
}

// The first of a warpgroup's rows, or one behind all that there are for a launch that may not store.
__device__ __forceinline__ u32 first_row_to_store(Tile tile, u32 consumer, u32 output_slot) {
    constexpr u32 kNoRow = 0x40000000;
    return output_slot == kRefused ? kNoRow : tile.block * kBlockM + consumer * kWarpgroupRows;
}

// 16 bytes of one token's row, in the buffer of the rank that owns the token; goes on from token to token.
class OutputRow {
public:
    __device__ __forceinline__ OutputRow(const AttentionArguments& arguments, u32 rows_per_rank, u32 output_slot,
                                         u32 head, u32 token, u32 vector)
        : arguments_(arguments),
          rows_per_rank_(rows_per_rank),
          token_(token),
          rank_(token / rows_per_rank),
          row_(token - rank_ * rows_per_rank),
          offset_(output_slot * arguments.epoch_bytes + head * kRowBytes + vector * 16) {}

    // Tokens behind the last one have no place.
    __device__ __forceinline__ void store(uint4 value) const {
        if (token_ < arguments_.tokens) {
            store_v4(arguments_.destination[rank_] + offset_ + static_cast<u64>(row_) * arguments_.token_bytes, value);
        }
    }

    __device__ __forceinline__ void advance(u32 tokens) {
        token_ += tokens;
        row_ += tokens;
        while (row_ >= rows_per_rank_) {
            row_ -= rows_per_rank_;
            ++rank_;
        }
    }

private:
    const AttentionArguments& arguments_;
    u32 rows_per_rank_;
    u32 token_;
    u32 rank_;
    u32 row_;  // of the rank
    u64 offset_;
};

}  // namespace xstage
