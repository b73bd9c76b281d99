// The steps of a layer without fusion that a library of matrix products leaves: what the fused kernel is compared with.
#include "common/store.cuh"
#include "megamoe/activations.cuh"
#include "megamoe/arguments.cuh"
#include "megamoe/format.cuh"
#include "megamoe/scales.cuh"

namespace xstage::megamoe {

struct SerialArguments {
    const char* products1;   // [pool rows, 2 * intermediate] bf16, gate then up
    char* activations;       // [pool rows, intermediate] of the layer's format
    float* scales;           // of an expert [blocks of intermediate, its rows], one expert behind the other; or null
    const char* products2;   // [pool rows, hidden] bf16
    const u32* places;       // [rows] of the pool
    const u32* first_scale;  // [rows] of a row, in `scales`
    const u32* scale_step;   // [rows] from that to the row's next
    const RowSource* sources;  // [pool rows]
    char* destination[kMaxRanks];  // rank's slots, of `hidden` bf16
    u32 rows;
    u32 hidden;
    u32 intermediate;
    u32 padding;
};
static_assert(sizeof(SerialArguments) == 144);

constexpr u32 kColumns = 4;  // of a lane; a warp has those of one scale
static_assert(kColumns * kWarpThreads == kScaleBlock);
constexpr u32 kInFlight = 4;  // vectors that a lane loads before it stores them

__device__ __forceinline__ void unpack_bf16(const char* address, float (&values)[kColumns]) {
    const uint2 words = *reinterpret_cast<const uint2*>(address);
    values[0] = __uint_as_float(words.x << 16);
    values[1] = __uint_as_float(words.x & 0xffff0000u);
    values[2] = __uint_as_float(words.y << 16);
    values[3] = __uint_as_float(words.y & 0xffff0000u);
}

__device__ __forceinline__ u32 warps_of_grid() { return gridDim.x * (blockDim.x / kWarpThreads); }
__device__ __forceinline__ u32 warp_of_grid() {
    return (blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads;
}

}  // namespace xstage::megamoe

using namespace xstage;
using namespace xstage::megamoe;

// SwiGLU of Linear-1's products, as Linear-2 takes it. A warp has one block of columns of a row.
extern "C" __global__ void activate(const __grid_constant__ SerialArguments arguments) {
    const u32 lane = threadIdx.x % kWarpThreads;
    const u32 blocks = scale_blocks(arguments.intermediate);
    for (u64 at = warp_of_grid(); at < static_cast<u64>(arguments.rows) * blocks; at += warps_of_grid()) {
        const u32 row = static_cast<u32>(at / blocks);
        const u32 block = static_cast<u32>(at - static_cast<u64>(row) * blocks);
        const u64 place = arguments.places[row];
        const u32 column = block * kScaleBlock + lane * kColumns;
        const bool exists = column < arguments.intermediate;
        float made[kColumns] = {};
        if (exists) {
            float gate[kColumns], up[kColumns];
            const char* products = arguments.products1 + place * arguments.intermediate * 4;
            unpack_bf16(products + column * 2, gate);
            unpack_bf16(products + (arguments.intermediate + column) * 2, up);
#pragma unroll
            for (u32 i = 0; i < kColumns; ++i) {
                made[i] = swiglu(gate[i], up[i]);
            }
        }
        char* to = arguments.activations + (place * arguments.intermediate + column) * kElementBytes;
        if (kScaled) {
            float largest = 1e-30f;
#pragma unroll
            for (const float one : made) {
                largest = fmaxf(largest, fabsf(one));
            }
#pragma unroll
            for (u32 mask = kWarpThreads / 2; mask != 0; mask /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
            }
            const float factor = kLargestE4m3 / largest;
            if (exists) {
                *reinterpret_cast<u32*>(to) =
                    pack_e4m3(made[0] * factor, made[1] * factor) |
                    static_cast<u32>(pack_e4m3(made[2] * factor, made[3] * factor)) << 16;
            }
            if (lane == 0) {
                arguments.scales[arguments.first_scale[row] + block * arguments.scale_step[row]] =
                    largest / kLargestE4m3;
            }
        } else if (exists) {
            *reinterpret_cast<uint2*>(to) = make_uint2(pack_bf16(made[0], made[1]), pack_bf16(made[2], made[3]));
        }
    }
}

// Every row of Linear-2 to its slot at its rank. A warp has one row at a time.
extern "C" __global__ void send_rows(const __grid_constant__ SerialArguments arguments) {
    const u32 lane = threadIdx.x % kWarpThreads;
    const u32 vectors = arguments.hidden / 8;
    for (u32 row = warp_of_grid(); row < arguments.rows; row += warps_of_grid()) {
        const u64 place = arguments.places[row];
        const RowSource source = arguments.sources[place];
        const uint4* from = reinterpret_cast<const uint4*>(arguments.products2) + place * vectors;
        char* to = arguments.destination[source.rank] + static_cast<u64>(source.slot) * arguments.hidden * 2;
        for (u32 first = lane; first < vectors; first += kInFlight * kWarpThreads) {
            uint4 values[kInFlight];
#pragma unroll
            for (u32 i = 0; i < kInFlight; ++i) {
                if (first + i * kWarpThreads < vectors) {
                    values[i] = from[first + i * kWarpThreads];
                }
            }
#pragma unroll
            for (u32 i = 0; i < kInFlight; ++i) {
                if (first + i * kWarpThreads < vectors) {
                    store_v4(to + (first + i * kWarpThreads) * 16, values[i]);
                }
            }
        }
    }
}
