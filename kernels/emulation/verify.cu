// Owner's check of what a skeleton stored, for destinations in GPU memory: runs on the owner GPU, after the sender
// has completed. Destinations in host memory are checked by the CPU, their owner.
#include "common/pattern.cuh"
#include "common/types.cuh"

namespace xstage::emulation {

// What a tile must have left. Its bytes are the pattern's from `phase` on.
struct Extent {
    u64 offset;  // from the start of the memory
    u32 bytes;
    u32 phase;
    u32 tile;
    u32 padding;
};
static_assert(sizeof(Extent) == 24);

struct VerifyExtentsArguments {
    const char* memory;
    const Extent* extents;
    u64* mismatched_vectors;
    u32 extent_count;
    u32 nonce;
};
static_assert(sizeof(VerifyExtentsArguments) == 32);

}  // namespace xstage::emulation

using namespace xstage;
using namespace xstage::emulation;

extern "C" __global__ void verify_extents(const __grid_constant__ VerifyExtentsArguments arguments) {
    u32 mismatched = 0;
    for (u32 index = blockIdx.x; index < arguments.extent_count; index += gridDim.x) {
        const Extent extent = arguments.extents[index];
        const uint4* stored = reinterpret_cast<const uint4*>(arguments.memory + extent.offset);
        for (u32 vector = threadIdx.x; vector < extent.bytes / kVectorBytes; vector += blockDim.x) {
            const u32 in_piece = (extent.phase / kVectorBytes + vector) % (kPieceBytes / kVectorBytes);
            const uint4 seen = stored[vector];
            const uint4 expected = pattern_vector(arguments.nonce, in_piece, extent.tile);
            mismatched += seen.x != expected.x || seen.y != expected.y || seen.z != expected.z ||
                          seen.w != expected.w;
        }
    }
    if (mismatched != 0) {
        atomicAdd(arguments.mismatched_vectors, static_cast<u64>(mismatched));
    }
}
