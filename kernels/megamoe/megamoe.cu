// A rank's experts of a MoE layer in one kernel: Linear-1 (gate and up), SwiGLU, Linear-2, and Combine as remote
// stores, tile by tile in the order of a schedule.
//
// Persistent CTAs, one an SM, whose warps have roles: pipeline.cuh names them and says why none waits for ever. The
// rows that were routed here lie in a pool, those of an expert together from a multiple of block_m on; they are there
// already, or the kernel pulls them from the ranks' buffers while it computes (dispatch.cuh). Linear-1 leaves
// its activations in the GPU's own memory, and counts them by rows of tiles; Linear-2 of a row begins when all of its
// Linear-1 is there. What Linear-2 makes leaves at once for the ranks whose tokens it is of, into places that are
// each written once; a reduction of them in fixed order is reduce.cu.
#include "common/signal.cuh"
#include "megamoe/epilogue.cuh"
#include "megamoe/publisher.cuh"
#include "megamoe/storer.cuh"

namespace xstage::megamoe {

// When all CTAs have ended: tells every rank that this sender's rows have arrived, unless a wait ran out, and makes the
// counters zero for the next launch. All threads, whose copies are complete.
__device__ __forceinline__ void end_launch(const MoeArguments& arguments) {
    LaunchState* state = arguments.state;
    bool last = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (arguments.signal[arguments.rank] != nullptr) {
            fence_system();
        }
        last = fetch_add_gpu(&state->finished, 1) + 1 == gridDim.x;
    }
    if (!__syncthreads_or(last)) {
        return;
    }
    const u32 rows = arguments.scheduler.first_row[arguments.scheduler.experts];
    for (u32 row = threadIdx.x; row < rows; row += kThreads) {
        arguments.counters[row] = 0;
        if (kDispatch) {
            arguments.arrivals[row] = 0;
        }
    }
    if (threadIdx.x == 0) {
        const u32 epoch = state->epoch + 1;
        const bool whole = !has_failed(arguments.fault);
        for (u32 rank = 0; rank < kMaxRanks; ++rank) {
            if (whole && arguments.signal[rank] != nullptr) {
                store_release_system(arguments.signal[rank], epoch);
            }
        }
        *state = {0, 0, epoch, 0};
    }
}

}  // namespace xstage::megamoe

using namespace xstage;
using namespace xstage::megamoe;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    mega_moe(const __grid_constant__ MoeArguments arguments) {
    extern __shared__ __align__(1024) char shared[];
    Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared + kPipelineOffset);
    if (threadIdx.x == 0) {
        pipeline.init();
    }
    __syncthreads();
    const u32 warp = warp_uniform(threadIdx.x / kWarpThreads);
    if (warp < kConsumerWarps) {
        claim_registers<kConsumerRegisters>();
        consume(arguments, pipeline, shared, warp / 4);
    } else {
        release_registers<kMovingRegisters>();
        const u32 mover = warp - kConsumerWarps;
        if (mover < kConsumers) {
            Storer(arguments, pipeline, shared, mover).run();
        } else if (mover == kConsumers) {
            publish(arguments, pipeline, shared);
        } else {
            load_tiles(arguments, pipeline, shared);
        }
    }
    end_launch(arguments);
}
