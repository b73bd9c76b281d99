// Asynchronous matrix products of a warpgroup in e4m3: D[64, 128] += A[64, 32] B[32, 128], accumulated by the tensor
// cores with fewer bits than fp32 has. See wgmma.cuh, whose fences, groups and pins these share.
#pragma once

#include "common/wgmma.cuh"

namespace xstage {

// Bytes along the reduction that one product takes of a row, in any format.
constexpr u32 kProductDepthBytes = 32;

#define XSTAGE_FLOATS(i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])

// A and B in shared memory, rows along the reduction; D = A B, plus D if `accumulate`.
__device__ __forceinline__ void multiply_e4m3(float (&d)[64], u64 a, u64 b, u32 accumulate) {
    asm volatile(
        "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" XSTAGE_NUMBERS_8 "}, %64, %65, accumulate, 1, 1;\n}\n"
        : XSTAGE_OPERANDS_8
        : "l"(a), "l"(b), "r"(accumulate));
}

#undef XSTAGE_FLOATS

}  // namespace xstage
