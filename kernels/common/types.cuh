// Fixed-width integers without the CUDA headers: a kernel compiles with NVRTC alone.
#pragma once

namespace xstage {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

}  // namespace xstage
