// A consumer's products: its part of a tile, in registers.
#pragma once

#include "megamoe/pipeline.cuh"

#if FORMAT == 0
#include "megamoe/bf16_products.cuh"
#else
#include "megamoe/e4m3_products.cuh"
#endif

namespace xstage::megamoe {

class Products {
public:
    __device__ Products(const MoeArguments& arguments, Pipeline& pipeline, char* shared, u32 consumer)
        : arguments_(arguments), operands_(pipeline, shared, consumer), consumer_(consumer) {}

    // For a part's first operands.
    __device__ __forceinline__ void wait() { operands_.wait(); }

    // All products of a part; a consumer without rows only lets the operands go.
    __device__ __forceinline__ void run(const QueuedTile& tile, Sums& sums) {
        const u32 steps = depth_steps(arguments_, tile.layer);
        if (rows_of_part(tile, consumer_) != 0) {
            multiply(operands_, sums, tile, steps);
            return;
        }
        for (u32 step = 0; step < steps; ++step) {
            for (u32 piece = 0; piece < kColumnPieces; ++piece) {
                operands_.wait(piece);
                operands_.release(operands_.stage(), piece);
            }
            operands_.advance();
        }
    }

private:
    const MoeArguments& arguments_;
    Operands operands_;
    u32 consumer_;
};

}  // namespace xstage::megamoe
