// Products of a part in e4m3: sums of 128 of the depth by the tensor cores, which keep few bits of such sums; then,
// each times the scales of its row and of its block of weights, added to the part's in fp32.
//
// A thread has 128 of the part's sums, and 64 of the tensor cores': of one of the two products at a time. While a
// consumer adds one product, the tensor cores work at the other consumer's, so neither waits for more than itself.
#pragma once

#include "megamoe/operands.cuh"

namespace xstage::megamoe {

// Adds a product to its sums; rows alternate by pairs of registers.
__device__ __forceinline__ void promote(float (&sums)[kProductFloats], const float (&product)[kProductFloats],
                                        const float (&scale)[2]) {
#pragma unroll
    for (u32 i = 0; i < kProductFloats; ++i) {
        sums[i] += product[i] * scale[i / 2 % 2];
    }
}

// A part of both products, or of a shared tile this consumer's product of all rows, whose sums are then the first.
template <bool kShared>
__device__ __forceinline__ void multiply_part(Operands& operands, Sums& sums, u32 steps) {
    constexpr u32 kEach = kShared ? 1 : kProducts;
    const u32 first_row = kShared ? 0 : operands.consumer() * kPartRows;
    const u32 row = first_row + row_of_sums(warpgroup_thread());
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
#pragma unroll
        for (float& sum : sums.product[i]) {
            sum = 0;
        }
    }
#pragma unroll 1
    for (u32 step = 0; step < steps; ++step) {
        operands.wait();
        const float rows[2] = {load_shared_float(operands.row_scales() + row * sizeof(float)),
                               load_shared_float(operands.row_scales() + (row + 8) * sizeof(float))};
#pragma unroll
        for (u32 i = 0; i < kEach; ++i) {
            const u32 product = kShared ? operands.consumer() : i;
            if (product != 0) {
                operands.wait(product);
            }
            const float weights = load_shared_float(operands.weight_scales() + product * sizeof(float));
            float partial[kProductFloats];
            xstage::pin(partial);
            wgmma_fence();
#pragma unroll
            for (u32 depth = 0; depth < kSwizzleRowBytes / kProductDepthBytes; ++depth) {
                multiply_e4m3(partial, operand_at(operands.rows(first_row), depth * kProductDepthBytes),
                              operand_at(operands.columns(false, product), depth * kProductDepthBytes), depth);
            }
            wgmma_commit();
            wgmma_wait<0>();
            xstage::pin(partial);
            if (kShared) {
                operands.release(operands.stage(), 1 - product);
            }
            operands.release(operands.stage(), product);
            const float scale[2] = {rows[0] * weights, rows[1] * weights};
            promote(sums.product[i], partial, scale);
        }
        operands.advance();
    }
}

// Of a part with rows, whose first stage is there.
__device__ __forceinline__ void multiply(Operands& operands, Sums& sums, const QueuedTile& tile, u32 steps) {
    if (is_shared(tile)) {
        multiply_part<true>(operands, sums, steps);
    } else {
        multiply_part<false>(operands, sums, steps);
    }
}

}  // namespace xstage::megamoe
