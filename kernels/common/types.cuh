// Fixed-width integers, and four floats, without the CUDA headers: a kernel compiles with NVRTC alone.
#pragma once

namespace xstage {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// What one 16-byte access moves.
struct alignas(16) FloatVector {
    float x, y, z, w;
};

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

}  // namespace xstage
