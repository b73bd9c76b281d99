// FlashAttention (full attention, bf16) whose output tiles leave as remote stores: the All-to-All after Ulysses
// attention without a kernel of its own.
//
// Persistent CTAs of one producer warp and two or three consumer warpgroups. The producer keeps copies of Q, K and V
// coming. Each consumer owns 64 rows of a tile from the first score on: it stages the finished rows and stores each to
// the rank that owns its token, whatever memory that rank's base pointer names; or it leaves the storing to a warp of
// its own and goes on. With one rank, in local memory, and no `epochs` the same kernel is the attention alone.
#include "attention_a2a/completion.cuh"
#include "attention_a2a/output.cuh"
#include "attention_a2a/q_loop.cuh"
#include "attention_a2a/storer.cuh"

namespace xstage {

__device__ __forceinline__ void consume(const AttentionArguments& arguments, const TileGrid& grid, Pipeline& pipeline,
                                        char* shared, u32 consumer) {
    TileSpans spans(shared, consumer, arguments);
    TileWriter writer(pipeline, shared, consumer, arguments);
    QLoop q_loop(pipeline, shared, consumer, arguments);
    spans.open(arguments, consumer);
    u32 index = 0;
    for (u32 place = blockIdx.x; place < grid.tiles(); place += gridDim.x, ++index) {
        pipeline.query_full.wait(index % 2);
        const Tile tile = pipeline.tile;
        float output[kOutputs];
        q_loop.run(output);
        writer.write(arguments, grid.rows_per_rank(), tile, index, output, spans);
    }
    writer.finish(arguments.complete);
    if (kRecordSpans) {
        writer.wait_until_issued(index);  // the lane's end is the sender's
    }
    spans.close(arguments, consumer, index, writer.barrier());
    if (arguments.complete) {
        named_barrier_sync(kStoredBarrier, kStoringThreads);
        if (consumer == 0 && threadIdx.x % kWarpgroupThreads == 0) {
            complete_epoch(arguments);
        }
    }
}

// The warpgroup without products: a warp that loads, and where stores are paced one for each consumer that stores.
__device__ __forceinline__ void move_data(const AttentionArguments& arguments, const TileGrid& grid,
                                          Pipeline& pipeline, char* shared) {
    const u32 warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    if (warp == 0) {
        if (threadIdx.x % kWarpThreads == 0) {
            produce(arguments, grid, pipeline, shared);
        }
    } else if (kPaced && warp <= kConsumers) {
        Storer(pipeline, shared, warp - 1, arguments).run(arguments, grid);
        if (arguments.complete) {
            named_barrier_arrive(kStoredBarrier, kStoringThreads);
        }
    }
}

}  // namespace xstage

using namespace xstage;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_a2a(const __grid_constant__ AttentionArguments arguments) {
    extern __shared__ __align__(1024) char shared[];
    Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared + kPipelineOffset);
    const TileGrid grid(arguments.tokens, arguments.heads, kBlockM, arguments.ranks, arguments.rank);
    if (threadIdx.x == 0) {
        pipeline.init();
    }
    __syncthreads();
    const u32 warpgroup = warp_uniform(threadIdx.x / kWarpgroupThreads);
    if (warpgroup == kConsumers) {
        release_registers<kLoadRegisters>();
        move_data(arguments, grid, pipeline, shared);
    } else {
        claim_registers<kConsumerRegisters>();
        consume(arguments, grid, pipeline, shared, warpgroup);
    }
}
