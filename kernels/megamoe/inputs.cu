// Operands of a layer whose kernel is timed: numbers that no power-saving trick of the tensor cores finds in zeros.
#include "common/types.cuh"
#include "common/warpgroup.cuh"
#include "megamoe/scales.cuh"

namespace xstage::megamoe {

struct FillArguments {
    char* values;  // bf16, or e4m3
    u64 vectors;   // of 16 bytes
    float most;    // they are uniform from -most to most, before they are rounded
    u32 seed;
};
static_assert(sizeof(FillArguments) == 24);

// Bits of a number that look like no others'.
__device__ __forceinline__ u32 scatter(u32 number) {
    number = (number ^ number >> 16) * 0x7feb352du;
    number = (number ^ number >> 15) * 0x846ca68bu;
    return number ^ number >> 16;
}

__device__ __forceinline__ u32 two_values(u32 bits, float most) {
    const float unit = most / 32768;
    return pack_bf16(static_cast<float>(static_cast<int>(bits & 0xffff) - 32768) * unit,
                     static_cast<float>(static_cast<int>(bits >> 16) - 32768) * unit);
}

__device__ __forceinline__ u32 four_values(u32 bits, float most) {
    const float unit = most / 128;
    u32 packed = 0;
#pragma unroll
    for (u32 pair = 0; pair < 2; ++pair) {
        const float low = static_cast<float>(static_cast<int>(bits >> 16 * pair & 0xff) - 128) * unit;
        const float high = static_cast<float>(static_cast<int>(bits >> (16 * pair + 8) & 0xff) - 128) * unit;
        packed |= static_cast<u32>(pack_e4m3(low, high)) << 16 * pair;
    }
    return packed;
}

template <u32 (*kWord)(u32, float)>
__device__ __forceinline__ void fill(const FillArguments& arguments) {
    const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < arguments.vectors; at += step) {
        u32 bits = scatter(static_cast<u32>(at) ^ scatter(arguments.seed + static_cast<u32>(at >> 32)));
        u32 words[4];
#pragma unroll
        for (u32& word : words) {
            word = kWord(bits, arguments.most);
            bits = scatter(bits + 0x9e3779b9u);
        }
        reinterpret_cast<uint4*>(arguments.values)[at] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

}  // namespace xstage::megamoe

using namespace xstage;
using namespace xstage::megamoe;

extern "C" __global__ void fill_uniform(const __grid_constant__ FillArguments arguments) {
    fill<two_values>(arguments);
}

extern "C" __global__ void fill_uniform_e4m3(const __grid_constant__ FillArguments arguments) {
    fill<four_values>(arguments);
}
