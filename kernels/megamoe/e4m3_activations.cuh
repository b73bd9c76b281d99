// What Linear-1 leaves in e4m3: each row times what makes its largest of 128 columns the largest that there is, and
// that scale. A part's activations are one such block of their rows, so a consumer finds the scales by itself. Of a
// shared tile one has gate and the other up: they give each other half of the columns, and then the maxima of their
// halves.
#pragma once

#include "megamoe/activations.cuh"
#include "megamoe/operands.cuh"
#include "megamoe/scales.cuh"

namespace xstage::megamoe {

// Of a row of zeros.
constexpr float kSmallestMaximum = 1e-30f;

// Of a slot, behind a part's activations and scales: what the consumers of a shared tile give each other.
constexpr u32 kGivenOffset = kActivationScalesOffset + 1024;
constexpr u32 kGivenFloats = kProductFloats / 2;  // of a thread
constexpr u32 kMaximaOffset = kGivenOffset + kWarpgroupThreads * kGivenFloats * sizeof(float);
static_assert(!kScaled || kMaximaOffset + kPartRows * sizeof(float) <= kSlotBytes);
constexpr u32 kExchange = 1;  // a barrier

__device__ __forceinline__ void await_other_consumer() {
    named_barrier_sync(kExchange, kConsumers * kWarpgroupThreads);
}

// The largest of both rows among so many values of a thread, over the four threads that share them.
template <u32 kUsed, u32 kCount>
__device__ __forceinline__ void find_largest(const float (&values)[kCount], float (&largest)[2]) {
    largest[0] = largest[1] = kSmallestMaximum;
#pragma unroll
    for (u32 i = 0; i < kUsed; ++i) {
        largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], fabsf(values[i]));
    }
#pragma unroll
    for (float& one : largest) {
        one = fmaxf(one, __shfl_xor_sync(0xffffffffu, one, 1));
        one = fmaxf(one, __shfl_xor_sync(0xffffffffu, one, 2));
    }
}

// Stages so many of a thread's activations, from a column on.
template <u32 kStaged, u32 kCount>
__device__ __forceinline__ void stage_scaled(const char* slot, const float (&values)[kCount], u32 column,
                                             const float (&largest)[2]) {
    const u32 thread = warpgroup_thread();
    const u32 row = row_of_sums(thread);
    const float factor[2] = {kLargestE4m3 / largest[0], kLargestE4m3 / largest[1]};
#pragma unroll
    for (u32 i = 0; i < kStaged; i += 2) {
        const u32 which = i / 2 % 2;
        const u32 byte = column + i / 4 * 8 + thread % 4 * 2;  // in the row
        store_shared_u16(staged_activation(slot, row + 8 * which, byte / 16) + byte % 16,
                         pack_e4m3(values[i] * factor[which], values[i + 1] * factor[which]));
    }
    if (column == 0 && thread % 4 == 0) {
        const u32 scales = shared_address(slot) + kActivationScalesOffset + row * sizeof(float);
        store_shared_float(scales, largest[0] / kLargestE4m3);
        store_shared_float(scales + 8 * sizeof(float), largest[1] / kLargestE4m3);
    }
}

// Gives away the half of a product that is the other consumer's, and takes the other product of its own half: then
// has the activations of 64 columns in the first half of the product.
__device__ __forceinline__ void exchange_halves(const char* mine, const char* others, bool gate,
                                                float (&product)[kProductFloats]) {
    const u32 thread = warpgroup_thread();
#pragma unroll
    for (u32 i = 0; i < kGivenFloats; ++i) {
        const float given = gate ? product[i + kGivenFloats] : product[i];
        store_shared_float(shared_address(mine) + kGivenOffset + (i * kWarpgroupThreads + thread) * sizeof(float),
                           given);
    }
    await_other_consumer();
#pragma unroll
    for (u32 i = 0; i < kGivenFloats; ++i) {
        const float kept = gate ? product[i] : product[i + kGivenFloats];
        const float taken = load_shared_float(shared_address(others) + kGivenOffset +
                                              (i * kWarpgroupThreads + thread) * sizeof(float));
        product[i] = gate ? swiglu(kept, taken) : swiglu(taken, kept);
    }
}

// The larger of both consumers' maxima of a row.
__device__ __forceinline__ void exchange_maxima(const char* mine, const char* others, float (&largest)[2]) {
    const u32 thread = warpgroup_thread();
    const u32 place = kMaximaOffset + row_of_sums(thread) * sizeof(float);
    if (thread % 4 == 0) {
        store_shared_float(shared_address(mine) + place, largest[0]);
        store_shared_float(shared_address(mine) + place + 8 * sizeof(float), largest[1]);
    }
    await_other_consumer();
    largest[0] = fmaxf(largest[0], load_shared_float(shared_address(others) + place));
    largest[1] = fmaxf(largest[1], load_shared_float(shared_address(others) + place + 8 * sizeof(float)));
}

// A shared tile's are all staged in the first consumer's slot, which it has waited for before the exchange; and no slot
// is free again before both consumers have staged.
__device__ __forceinline__ void stage_activations(char* shared, u32 stage, const QueuedTile& tile, u32 consumer,
                                                  Sums& sums) {
    const char* slot = staging_slot(shared, consumer, stage);
    float largest[2];
    if (is_shared(tile)) {
        const char* others = staging_slot(shared, 1 - consumer, stage);
        exchange_halves(slot, others, consumer == 0, sums.product[0]);
        find_largest<kGivenFloats>(sums.product[0], largest);
        exchange_maxima(slot, others, largest);
        stage_scaled<kGivenFloats>(staging_slot(shared, 0, stage), sums.product[0], consumer * kScaleBlock / 2,
                                   largest);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < kProductFloats; ++i) {
        sums.product[0][i] = swiglu(sums.product[0][i], sums.product[1][i]);
    }
    find_largest<kProductFloats>(sums.product[0], largest);
    stage_scaled<kProductFloats>(slot, sums.product[0], 0, largest);
}

}  // namespace xstage::megamoe
