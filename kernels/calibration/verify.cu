// Owner's check of what the producers stored, for destinations in GPU memory. Runs on the owner GPU, after
// the senders have completed. Destinations in host memory are checked by the CPU, their owner.
#include "common/pattern.cuh"
#include "common/span.cuh"
#include "common/types.cuh"

namespace xstage {

struct VerifyArguments {
    const char* destination;  // producers * ring_bytes
    u64 ring_bytes;
    const u32* issued;  // [producers] bursts issued
    u64* mismatched_vectors;
    u32 burst_bytes;
    u32 nonce;
    u32 first_slot;
    u32 padding;
};
static_assert(sizeof(VerifyArguments) == 48);

}  // namespace xstage

using namespace xstage;

// One row of CTAs (blockIdx.y) a producer.
extern "C" __global__ void verify_bursts(const VerifyArguments arguments) {
    const u32 issued = arguments.issued[blockIdx.y];
    const u32 slots = static_cast<u32>(arguments.ring_bytes / arguments.burst_bytes);
    const u32 written = min(issued, slots);
    const u32 vectors = arguments.burst_bytes / kVectorBytes;
    const char* ring = arguments.destination + blockIdx.y * arguments.ring_bytes;
    u32 mismatched = 0;
    for (u32 first = blockIdx.x; first < written; first += gridDim.x) {
        // Where the burst of that number landed, and the last one that landed there.
        const u32 slot = (first + arguments.first_slot) % slots;
        const u32 burst = first + (issued - 1 - first) / slots * slots;
        const uint4* stored = reinterpret_cast<const uint4*>(ring + static_cast<u64>(slot) * arguments.burst_bytes);
        for (u32 vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
            const uint4 seen = stored[vector];
            const uint4 expected = pattern_vector(arguments.nonce, vector % (kPieceBytes / kVectorBytes), burst);
            mismatched += seen.x != expected.x || seen.y != expected.y || seen.z != expected.z ||
                          seen.w != expected.w;
        }
    }
    if (mismatched != 0) {
        atomicAdd(arguments.mismatched_vectors, static_cast<u64>(mismatched));
    }
}
