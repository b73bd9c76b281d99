// Online softmax over the scores of a warpgroup's 64 rows.
//
// A thread holds elements of two rows, 8 apart: of every group of 8 columns, elements 0 and 1 are in its first row,
// 2 and 3 in its second. Four neighbouring threads share a row.
#pragma once

#include "attention_a2a/config.cuh"
#include "common/types.cuh"

namespace xstage {

constexpr u32 kScores = kBlockN / 2;  // of a thread
constexpr u32 kOutputs = kHeadDim / 2;

// Of the four threads that share a row.
__device__ __forceinline__ float row_maximum(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ __forceinline__ float row_total(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// Takes columns from `columns` on out of the softmax.
__device__ __forceinline__ void mask_scores(float (&scores)[kScores], u32 columns) {
    const u32 first = 2 * (threadIdx.x % 4);
#pragma unroll
    for (u32 i = 0; i < kScores; ++i) {
        if (i / 4 * 8 + first + i % 2 >= columns) {
            scores[i] = -__int_as_float(0x7f800000);
        }
    }
}

// The probabilities as operand A of the product with V.
__device__ __forceinline__ void pack_probabilities(u32 (&packed)[kScores / 2], const float (&scores)[kScores]) {
#pragma unroll
    for (u32 i = 0; i < kScores / 2; ++i) {
        packed[i] = pack_bf16(scores[2 * i], scores[2 * i + 1]);
    }
}

// What two outputs of different KV rows are multiplied with before they are added, for a thread's two rows.
struct MergeScales {
    float mine[2];
    float other[2];
};

class OnlineSoftmax {
public:
    __device__ explicit OnlineSoftmax(float scale_log2) : scale_log2_(scale_log2) {}

    // Turns scores into probabilities relative to the row's largest score so far.
    template <bool kFirst>
    __device__ __forceinline__ void update(float (&scores)[kScores]) {
#pragma unroll
        for (u32 row = 0; row < 2; ++row) {
            // Two chains, since each is a row of dependent instructions.
            float left = kFirst || kKeepsScaled ? scores[2 * row] : fmaxf(largest_[row], scores[2 * row]);
            float right = scores[2 * row + 1];
#pragma unroll
            for (u32 i = 4 + 2 * row; i < kScores; i += 4) {
                left = fmaxf(left, scores[i]);
                right = fmaxf(right, scores[i + 1]);
            }
            float largest = row_maximum(fmaxf(left, right));
            if (kKeepsScaled) {
                largest = kFirst ? scaled(largest) : fmaxf(largest_[row], scaled(largest));
            }
            const float shift = shift_of(largest);
            if (!kFirst) {
                correction_[row] = exp2_approximate(shift_of(largest_[row]) - shift);
            }
            largest_[row] = largest;
            float left_sum = 0;
            float right_sum = 0;
#pragma unroll
            for (u32 i = 2 * row; i < kScores; i += 4) {
                scores[i] = exp2_approximate(scores[i] * scale_log2_ - shift);
                scores[i + 1] = exp2_approximate(scores[i + 1] * scale_log2_ - shift);
                left_sum += scores[i];
                right_sum += scores[i + 1];
            }
            // This thread's part; the row's parts are added up at its end.
            sum_[row] = (kFirst ? 0 : sum_[row] * correction_[row]) + (left_sum + right_sum);
        }
    }

    // Brings the output so far to the largest score that `update` found.
    __device__ __forceinline__ void rescale(float (&output)[kOutputs]) const {
        scale(output, correction_[0], correction_[1]);
    }

    // Of a thread's two rows, as another softmax needs it to merge them: largest scores, and sums of the whole rows.
    __device__ __forceinline__ FloatVector state() const {
        return {largest_[0], largest_[1], row_total(sum_[0]), row_total(sum_[1])};
    }

    // Takes over other KV rows of the same query rows, whose sums are added to the first of a row's four threads.
    __device__ __forceinline__ MergeScales merge(FloatVector other) {
        const float other_largest[2] = {other.x, other.y};
        const bool first = threadIdx.x % 4 == 0;
        const float other_sum[2] = {first ? other.z : 0, first ? other.w : 0};
        MergeScales scales;
#pragma unroll
        for (u32 row = 0; row < 2; ++row) {
            const float largest = fmaxf(largest_[row], other_largest[row]);
            const float shift = shift_of(largest);
            scales.mine[row] = exp2_approximate(shift_of(largest_[row]) - shift);
            scales.other[row] = exp2_approximate(shift_of(other_largest[row]) - shift);
            largest_[row] = largest;
            sum_[row] = sum_[row] * scales.mine[row] + other_sum[row] * scales.other[row];
        }
        return scales;
    }

    // Of the thread's `row`-th row: the natural logarithm of the sum over keys of exp(scaled score).
    __device__ __forceinline__ float log_sum(u32 row) const {
        constexpr float kLn2 = 0.693147180559945f;
        return kLn2 * (shift_of(largest_[row]) + log2f(row_total(sum_[row])));
    }

    __device__ __forceinline__ void normalise(float (&output)[kOutputs]) const {
        scale(output, 1 / row_total(sum_[0]), 1 / row_total(sum_[1]));
    }

private:
    // Whether a row's largest score is kept scaled. Either way is right; the compiler makes more of the one for 128x176
    // (by 1%), and of the other one for 192x128 (by 2 to 4%).
    static constexpr bool kKeepsScaled = kBlockN > 128;

    // Rounded by itself, so that no subtraction is fused with it: while the largest score stands old tiles are rescaled
    // by exactly 1, and otherwise from just the shift that they were computed with.
    __device__ __forceinline__ float scaled(float score) const { return __fmul_rn(score, scale_log2_); }

    __device__ __forceinline__ float shift_of(float largest) const { return kKeepsScaled ? largest : scaled(largest); }

    static __device__ __forceinline__ void scale(float (&output)[kOutputs], float first, float second) {
#pragma unroll
        for (u32 i = 0; i < kOutputs; ++i) {
            output[i] *= i % 4 < 2 ? first : second;
        }
    }

    float scale_log2_;
    float largest_[2];  // score of a row so far
    float sum_[2];
    float correction_[2];
};

}  // namespace xstage
