// Asynchronous matrix products of a warpgroup: D[64, N] += A[64, 16] B[16, N] in bf16, accumulated in fp32.
//
// Between `wgmma_commit` and the `wgmma_wait` for it, D and a register operand A belong to the tensor cores; `pin`
// around both keeps the compiler from moving its own accesses there.
#pragma once

#include "common/swizzle.cuh"
#include "common/types.cuh"

namespace xstage {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `kGroups` committed groups are unfinished.
template <int kGroups>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        asm volatile("" : "+f"(registers[i])::"memory");
    }
}

template <int kCount>
__device__ __forceinline__ void pin(u32 (&registers)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        asm volatile("" : "+r"(registers[i])::"memory");
    }
}

// Products of width N:
//   from_shared     A rows along the reduction (K-major), B rows along the reduction; D = A B, plus D if `accumulate`
//   from_registers  A in registers; B rows along N, so that the reduction runs across its rows (MN-major); D += A B
template <int kN>
struct Wgmma;

// The text of an instruction has one number for each operand, so every width has its own. A thread holds N / 2
// floats of D: eight for each step of 16 columns.
#define XSTAGE_NUMBERS_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define XSTAGE_NUMBERS_2 XSTAGE_NUMBERS_1 ", " "%8, %9, %10, %11, %12, %13, %14, %15"
#define XSTAGE_NUMBERS_3 XSTAGE_NUMBERS_2 ", " "%16, %17, %18, %19, %20, %21, %22, %23"
#define XSTAGE_NUMBERS_4 XSTAGE_NUMBERS_3 ", " "%24, %25, %26, %27, %28, %29, %30, %31"
#define XSTAGE_NUMBERS_5 XSTAGE_NUMBERS_4 ", " "%32, %33, %34, %35, %36, %37, %38, %39"
#define XSTAGE_NUMBERS_6 XSTAGE_NUMBERS_5 ", " "%40, %41, %42, %43, %44, %45, %46, %47"
#define XSTAGE_NUMBERS_7 XSTAGE_NUMBERS_6 ", " "%48, %49, %50, %51, %52, %53, %54, %55"
#define XSTAGE_NUMBERS_8 XSTAGE_NUMBERS_7 ", " "%56, %57, %58, %59, %60, %61, %62, %63"
#define XSTAGE_NUMBERS_9 XSTAGE_NUMBERS_8 ", " "%64, %65, %66, %67, %68, %69, %70, %71"
#define XSTAGE_NUMBERS_10 XSTAGE_NUMBERS_9 ", " "%72, %73, %74, %75, %76, %77, %78, %79"
#define XSTAGE_NUMBERS_11 XSTAGE_NUMBERS_10 ", " "%80, %81, %82, %83, %84, %85, %86, %87"
#define XSTAGE_NUMBERS_12 XSTAGE_NUMBERS_11 ", " "%88, %89, %90, %91, %92, %93, %94, %95"
#define XSTAGE_NUMBERS_13 XSTAGE_NUMBERS_12 ", " "%96, %97, %98, %99, %100, %101, %102, %103"
#define XSTAGE_NUMBERS_14 XSTAGE_NUMBERS_13 ", " "%104, %105, %106, %107, %108, %109, %110, %111"
#define XSTAGE_NUMBERS_15 XSTAGE_NUMBERS_14 ", " "%112, %113, %114, %115, %116, %117, %118, %119"
#define XSTAGE_NUMBERS_16 XSTAGE_NUMBERS_15 ", " "%120, %121, %122, %123, %124, %125, %126, %127"

#define XSTAGE_FLOATS(i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define XSTAGE_OPERANDS_1 XSTAGE_FLOATS(0)
#define XSTAGE_OPERANDS_2 XSTAGE_OPERANDS_1, XSTAGE_FLOATS(8)
#define XSTAGE_OPERANDS_3 XSTAGE_OPERANDS_2, XSTAGE_FLOATS(16)
#define XSTAGE_OPERANDS_4 XSTAGE_OPERANDS_3, XSTAGE_FLOATS(24)
#define XSTAGE_OPERANDS_5 XSTAGE_OPERANDS_4, XSTAGE_FLOATS(32)
#define XSTAGE_OPERANDS_6 XSTAGE_OPERANDS_5, XSTAGE_FLOATS(40)
#define XSTAGE_OPERANDS_7 XSTAGE_OPERANDS_6, XSTAGE_FLOATS(48)
#define XSTAGE_OPERANDS_8 XSTAGE_OPERANDS_7, XSTAGE_FLOATS(56)
#define XSTAGE_OPERANDS_9 XSTAGE_OPERANDS_8, XSTAGE_FLOATS(64)
#define XSTAGE_OPERANDS_10 XSTAGE_OPERANDS_9, XSTAGE_FLOATS(72)
#define XSTAGE_OPERANDS_11 XSTAGE_OPERANDS_10, XSTAGE_FLOATS(80)
#define XSTAGE_OPERANDS_12 XSTAGE_OPERANDS_11, XSTAGE_FLOATS(88)
#define XSTAGE_OPERANDS_13 XSTAGE_OPERANDS_12, XSTAGE_FLOATS(96)
#define XSTAGE_OPERANDS_14 XSTAGE_OPERANDS_13, XSTAGE_FLOATS(104)
#define XSTAGE_OPERANDS_15 XSTAGE_OPERANDS_14, XSTAGE_FLOATS(112)
#define XSTAGE_OPERANDS_16 XSTAGE_OPERANDS_15, XSTAGE_FLOATS(120)

// `n`: the width; `steps`: n / 16; `i0` to `i4`: n / 2 and the numbers after it.
#define XSTAGE_WGMMA(n, steps, i0, i1, i2, i3, i4)                                                              \
    template <>                                                                                                 \
    struct Wgmma<n> {                                                                                           \
        static __device__ __forceinline__ void from_shared(float (&d)[n / 2], u64 a, u64 b, u32 accumulate) {   \
            asm volatile(                                                                                       \
                "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #i2 ", 0;\n"                             \
                "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" XSTAGE_NUMBERS_##steps "}, %" #i0  \
                ", %" #i1 ", accumulate, 1, 1, 0, 0;\n}\n"                                                      \
                : XSTAGE_OPERANDS_##steps                                                                       \
                : "l"(a), "l"(b), "r"(accumulate));                                                             \
        }                                                                                                       \
        static __device__ __forceinline__ void from_registers(float (&d)[n / 2], u32 a0, u32 a1, u32 a2, u32 a3, \
                                                              u64 b) {                                          \
            asm volatile(                                                                                       \
                "{\n.reg .pred accumulate;\nsetp.eq.u32 accumulate, 1, 1;\n"                                    \
                "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" XSTAGE_NUMBERS_##steps "}, {%" #i0 \
                ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", accumulate, 1, 1, 1;\n}\n"                         \
                : XSTAGE_OPERANDS_##steps                                                                       \
                : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                                  \
        }                                                                                                       \
    }

XSTAGE_WGMMA(64, 4, 32, 33, 34, 35, 36);
XSTAGE_WGMMA(80, 5, 40, 41, 42, 43, 44);
XSTAGE_WGMMA(96, 6, 48, 49, 50, 51, 52);
XSTAGE_WGMMA(112, 7, 56, 57, 58, 59, 60);
XSTAGE_WGMMA(128, 8, 64, 65, 66, 67, 68);
XSTAGE_WGMMA(144, 9, 72, 73, 74, 75, 76);
XSTAGE_WGMMA(160, 10, 80, 81, 82, 83, 84);
XSTAGE_WGMMA(176, 11, 88, 89, 90, 91, 92);
XSTAGE_WGMMA(192, 12, 96, 97, 98, 99, 100);
XSTAGE_WGMMA(256, 16, 128, 129, 130, 131, 132);

#undef XSTAGE_WGMMA
#undef XSTAGE_FLOATS

}  // namespace xstage
