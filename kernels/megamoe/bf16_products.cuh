// Products of a part in bf16: the tensor cores keep the sums from the first step to the last.
#pragma once

#include "megamoe/operands.cuh"

namespace xstage::megamoe {

__device__ __forceinline__ void issue_products(const Operands& operands, Sums& sums, bool first, u32 step) {
    const u32 row = kSplitColumns ? 0 : operands.consumer() * kPartRows;
    wgmma_fence();
#pragma unroll
    for (u32 depth = 0; depth < kSwizzleRowBytes / kProductDepthBytes; ++depth) {
#pragma unroll
        for (u32 product = 0; product < kProducts; ++product) {
            Wgmma<kProductColumns>::from_shared(
                sums.product[product], operand_at(operands.rows(row), depth * kProductDepthBytes),
                operand_at(operands.columns(first, product), depth * kProductDepthBytes), step + depth);
        }
    }
    wgmma_commit();
}

// Of a part with rows, whose first stage is there.
__device__ __forceinline__ void multiply(Operands& operands, Sums& sums, const QueuedTile& tile, u32 steps) {
    const bool first = tile.layer == Layer::linear1;
    pin(sums);
    issue_products(operands, sums, first, 0);
    u32 before = operands.stage();
    operands.advance();
    // One stage's products are always queued behind those that run.
#pragma unroll 1
    for (u32 step = 1; step < steps; ++step) {
        operands.wait();
        issue_products(operands, sums, first, step);
        wgmma_wait<1>();
        operands.release(before);
        before = operands.stage();
        operands.advance();
    }
    wgmma_wait<0>();
    pin(sums);
    operands.release(before);
}

}  // namespace xstage::megamoe
