// What products are made of and summed in: a consumer's operands in shared memory, its part of a tile in registers.
#pragma once

#include "common/wgmma_e4m3.cuh"
#include "megamoe/loader.cuh"

namespace xstage::megamoe {

constexpr u32 kProductFloats = kProductColumns / 2;  // of a thread

// Sums of a part. Thread t of a warpgroup has rows t / 4 % 8 and 8 more of its warp's 16, and of every 8 columns two.
struct Sums {
    float product[kProducts][kProductFloats];

    // In the order of the part's columns.
    __device__ __forceinline__ float at(u32 index) const {
        return product[index / kProductFloats][index % kProductFloats];
    }
    static constexpr u32 kCount = kProducts * kProductFloats;
};

__device__ __forceinline__ void pin(Sums& sums) {
#pragma unroll
    for (u32 i = 0; i < kProducts; ++i) {
        xstage::pin(sums.product[i]);
    }
}

__device__ __forceinline__ u32 warpgroup_thread() { return thread_anew() % kWarpgroupThreads; }

// The first of the two rows of a part that a thread has sums of.
__device__ __forceinline__ u32 row_of_sums(u32 thread) {
    return thread / kWarpThreads * 16 + thread % kWarpThreads / 4;
}

// Where the lane's address of a stored matrix lies: row of the part, and a 16-byte vector of two.
struct MatrixPlace {
    u32 row;
    u32 vector;

    __device__ explicit MatrixPlace(u32 thread)
        : row(thread / kWarpThreads * 16 + thread % 16), vector(thread % kWarpThreads / 16) {}
};

// A consumer's way through the stages.
class Operands {
public:
    __device__ Operands(Pipeline& pipeline, char* shared, u32 consumer)
        : pipeline_(pipeline), base_(shared_address(shared)), consumer_(consumer) {}

    // For a piece of the weights, and with the first for the rows.
    __device__ __forceinline__ void wait(u32 piece = 0) { pipeline_.operands_full[piece][at_.stage].wait(at_.parity); }

    __device__ __forceinline__ u32 stage() const { return at_.stage; }

    __device__ __forceinline__ void advance() { at_.advance(); }

    __device__ __forceinline__ u32 consumer() const { return consumer_; }

    // All lanes of a warp whose products with a stage's piece are done.
    __device__ __forceinline__ void release(u32 stage, u32 piece = 0) {
        arrive_warp(pipeline_.operands_empty[piece][stage]);
    }

    // From the first row of the part on. Descriptors are made from addresses each time: those of a whole lap are more
    // registers than there are.
    __device__ __forceinline__ u64 rows(u32 first) const {
        return swizzled_operand(base_ + at_.stage * kStageBytes + first * kSwizzleRowBytes, 0);
    }

    // Of a product of either layer.
    __device__ __forceinline__ u64 columns(bool first, u32 product) const {
        return swizzled_operand(
            base_ + at_.stage * kStageBytes + kRowsBytes + column_of(first, product) * kSwizzleRowBytes, 0);
    }

    // Where the stage's scales are, with kScaled: of all rows, and of the weights of both products.
    __device__ __forceinline__ u32 row_scales() const { return scales(); }
    __device__ __forceinline__ u32 weight_scales() const { return scales() + kRowScalesBytes; }

private:
    // First column of a product among the stage's: with split columns, of Linear-1 gate or up, of Linear-2 a quarter.
    __device__ __forceinline__ u32 column_of(bool first, u32 product) const {
        if (!kSplitColumns) {
            return product * kProductColumns;
        }
        return first ? product * (kBlockN / 2) + consumer_ * kProductColumns
                     : consumer_ * kPartColumns + product * kProductColumns;
    }

    __device__ __forceinline__ u32 scales() const {
        return base_ + kScalesOffset + at_.stage * kStageScalesBytes;
    }

    Pipeline& pipeline_;
    u32 base_;  // of the CTA's shared memory
    u32 consumer_;
    OperandPosition at_;
};

}  // namespace xstage::megamoe
