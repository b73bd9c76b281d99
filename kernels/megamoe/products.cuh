// A consumer's products: its part of a tile, in registers.
#pragma once

#include "common/wgmma.cuh"
#include "megamoe/loader.cuh"
#include "megamoe/role_spans.cuh"

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

class Products {
public:
    __device__ Products(const MoeArguments& arguments, Pipeline& pipeline, char* shared, u32 consumer)
        : arguments_(arguments), pipeline_(pipeline), consumer_(consumer) {
        const u32 base = shared_address(shared);
        rows_ = swizzled_operand(base + (kSplitColumns ? 0 : consumer * kPartRows * kSwizzleRowBytes), 0);
        columns_ = swizzled_operand(base + kRowsBytes, 0);
    }

    // All products of a part; a consumer without rows only lets the operands go.
    __device__ __forceinline__ void run(const QueuedTile& tile, Sums& sums, RoleSpans& spans) {
        const u32 steps = depth_steps(arguments_, tile.layer);
        pipeline_.operands_full[at_.stage].wait(at_.parity);
        spans.end(kDependencyWaitSpan, tile.layer);
        if (rows_of_part(tile, consumer_) == 0) {
            for (u32 step = 0; step < steps; ++step) {
                pipeline_.operands_full[at_.stage].wait(at_.parity);
                arrive_warp(pipeline_.operands_empty[at_.stage]);
                at_.advance();
            }
            return;
        }
        const bool first = tile.layer == Layer::linear1;
        pin(sums);
        issue(sums, first, 0);
        u32 before = at_.stage;
        at_.advance();
        // One stage's products are always queued behind those that run.
#pragma unroll 1
        for (u32 step = 1; step < steps; ++step) {
            issue(sums, first, step);
            wgmma_wait<1>();
            arrive_warp(pipeline_.operands_empty[before]);
            before = at_.stage;
            at_.advance();
        }
        wgmma_wait<0>();
        pin(sums);
        arrive_warp(pipeline_.operands_empty[before]);
    }

private:
    // First column of a product among the stage's: with split columns, of Linear-1 gate or up, of Linear-2 a quarter.
    __device__ __forceinline__ u32 column_of(bool first, u32 product) const {
        if (!kSplitColumns) {
            return 0;
        }
        return first ? product * (kBlockN / 2) + consumer_ * kProductColumns
                     : consumer_ * kPartColumns + product * kProductColumns;
    }

    __device__ __forceinline__ void issue(Sums& sums, bool first, u32 step) {
        constexpr u32 kStepBytes = 2 * kProductDepth;
        pipeline_.operands_full[at_.stage].wait(at_.parity);
        const u64 rows = operand_at(rows_, at_.stage * kStageBytes);
        wgmma_fence();
#pragma unroll
        for (u32 depth = 0; depth < kBlockK / kProductDepth; ++depth) {
#pragma unroll
            for (u32 product = 0; product < kProducts; ++product) {
                const u64 columns =
                    operand_at(columns_, at_.stage * kStageBytes + column_of(first, product) * kSwizzleRowBytes);
                Wgmma<kProductColumns>::from_shared(sums.product[product], operand_at(rows, depth * kStepBytes),
                                                    operand_at(columns, depth * kStepBytes), step + depth);
            }
        }
        wgmma_commit();
    }

    const MoeArguments& arguments_;
    Pipeline& pipeline_;
    u32 consumer_;
    u64 rows_;
    u64 columns_;
    OperandPosition at_;
};

}  // namespace xstage::megamoe
