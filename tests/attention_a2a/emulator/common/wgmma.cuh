// Emulated: see cta.hpp. A thread computes its own elements of a product, when it waits for it or at once.
#pragma once

#include "common/swizzle.cuh"
#include "common/warpgroup.cuh"

namespace xstage {

inline float bf16_value(u32 bits) { return __int_as_float(static_cast<int>(bits << 16)); }

inline float operand_element(u32 linear) {
    u16 bits;
    std::memcpy(&bits, ::shared + (linear ^ ((linear >> 3) & 0x70)), 2);
    return bf16_value(bits);
}

// Element of an operand whose rows of 128 bytes run along the reduction.
inline float k_major(u64 operand, u32 row, u32 k) {
    const u32 start = static_cast<u32>(operand & 0x3fff) << 4;
    const u32 atom = static_cast<u32>(operand >> 32 & 0x3fff) << 4;
    return operand_element(start + row / 8 * atom + row % 8 * 128 + k * 2);
}

// Element of an operand whose rows of 128 bytes are steps of the reduction.
inline float mn_major(u64 operand, u32 n, u32 k) {
    const u32 start = static_cast<u32>(operand & 0x3fff) << 4;
    const u32 chunk = static_cast<u32>(operand >> 16 & 0x3fff) << 4;
    const u32 atom = static_cast<u32>(operand >> 32 & 0x3fff) << 4;
    return operand_element(start + n / 64 * chunk + n % 64 * 2 + k / 8 * atom + k % 8 * 128);
}

inline void wgmma_fence() {}

inline void wgmma_commit() {
    emulator::Thread& thread = *emulator::cta().current;
    emulator::meet_warp();  // all lanes have put their register operands down
    thread.products.push_back(std::move(thread.open_products));
    thread.open_products.clear();
    if (emulator::chance(30)) {
        emulator::run_groups(thread.products, 0);
    }
}

template <int kGroups>
inline void wgmma_wait() {
    emulator::run_groups(emulator::cta().current->products, kGroups);
}

template <typename Registers>
inline void pin(Registers&) {}

template <int kN>
struct Wgmma {
    template <typename Left, typename Right>
    static void issue(float (&d)[kN / 2], bool accumulate, Left left, Right right) {
        auto task = std::make_shared<emulator::Task>();
        const u32 lane = threadIdx.x % 32;
        const u32 row = threadIdx.x % 128 / 32 * 16 + lane / 4;
        float* const sums = d;
        task->work = [=] {
            float a[2][16];
            for (u32 k = 0; k < 16; ++k) {
                a[0][k] = left(row, k);
                a[1][k] = left(row + 8, k);
            }
            for (u32 i = 0; i < kN / 2; ++i) {
                const u32 column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                float sum = accumulate ? sums[i] : 0;
                for (u32 k = 0; k < 16; ++k) {
                    sum += a[i % 4 / 2][k] * right(column, k);
                }
                sums[i] = sum;
            }
        };
        emulator::cta().current->open_products.push_back(task);
    }

    static void from_shared(float (&d)[kN / 2], u64 a, u64 b, u32 accumulate) {
        issue(
            d, accumulate != 0, [a](u32 row, u32 k) { return k_major(a, row, k); },
            [b](u32 n, u32 k) { return k_major(b, n, k); });
    }

    static void from_registers(float (&d)[kN / 2], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
        emulator::Cta& cta = emulator::cta();
        auto& mine = cta.current->operands;
        const std::size_t number = mine.size();
        mine.push_back({a0, a1, a2, a3});
        const u32 quad = threadIdx.x / 4 * 4;
        const u32 first_row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        issue(
            d, true,
            [&cta, number, quad, first_row](u32 row, u32 k) {
                const auto& held = cta.threads[quad + k % 8 / 2]->operands[number];
                return bf16_value(held[(row != first_row) + k / 8 * 2] >> k % 2 * 16 & 0xffff);
            },
            [b](u32 n, u32 k) { return mn_major(b, n, k); });
    }
};

}  // namespace xstage
