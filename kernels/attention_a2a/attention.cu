// FlashAttention (full attention, bf16) whose output tiles leave as remote stores: the All-to-All after Ulysses
// attention without a kernel of its own.
//
// Persistent CTAs of one producer warp and two or three consumer warpgroups. The producer keeps copies of Q, K and V
// coming. Each consumer owns 64 rows of a tile from the first score on: it stages the finished rows and stores each to
// the rank that owns its token, whatever memory that rank's base pointer names; or it leaves the storing to a warp of
// its own and goes on. The CTAs behind those, which find room as these end, receive this rank's tokens from all ranks:
// see receipt.cuh. Where KV is split, two CTAs make a tile together: see team.cuh. With one rank, in local memory,
// and no `exchange` the same kernel is the attention alone.
#include "attention_a2a/completion.cuh"
#include "attention_a2a/output.cuh"
#include "attention_a2a/partials.cuh"
#include "attention_a2a/q_loop.cuh"
#include "attention_a2a/receipt.cuh"
#include "attention_a2a/storer.cuh"

namespace xstage {

// Of the rows that a consumer finishes, of this rank's heads: for who merges outputs over other keys. Written also by a
// launch that may not store.
__device__ __forceinline__ void write_lse(const AttentionArguments& arguments, Tile tile, u32 consumer,
                                          const OnlineSoftmax& softmax) {
    const u32 lane = threadIdx.x % kWarpThreads;
    const u32 row_of_consumer = threadIdx.x % kWarpgroupThreads / kWarpThreads * 16 + lane / 4;
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
        const u32 token = tile.block * kBlockM + consumer * kWarpgroupRows + row_of_consumer + 8 * row;
        const float log_sum = softmax.log_sum(row);
        if (lane % 4 == 0 && token < arguments.tokens) {
            arguments.lse[static_cast<u64>(tile.head) * arguments.tokens + token] = log_sum;
        }
    }
    __syncwarp();  // behind each lane's own branch
}

__device__ __forceinline__ void consume(const AttentionArguments& arguments, const TileGrid& grid, Pipeline& pipeline,
                                        char* shared, u32 consumer) {
    TileSpans spans(shared, consumer, arguments);
    TileWriter writer(pipeline, shared, consumer);
    const Partials partials(pipeline, shared, consumer);
    const u32 tiles = tiles_of_team(arguments, grid);
    QLoop q_loop(pipeline, shared, consumer, arguments);
    if (finishes(consumer)) {
        spans.open(arguments);
    }
    for (u32 index = 0; index < tiles; ++index) {
        pipeline.query_full.wait(index % 2);
        const Tile tile = pipeline.tile;
        __syncwarp();  // all lanes have read it before one says that Q is read, and the producer writes the next
        writer.begin();
        float output[kOutputs];
        OnlineSoftmax softmax(arguments.scale_log2);
        q_loop.run(output, softmax);
        if (partials.merge(output, softmax, index, tiles)) {
            if (kWriteLse) {
                write_lse(arguments, tile, consumer, softmax);
            }
            softmax.normalise(output);
            writer.write(arguments, grid.rows_per_rank(), tile, index, output, spans);
        }
    }
    const bool completes = arguments.complete != Completion::none && pipeline.output_slot != kRefused;
    writer.finish(completes);
    if (kRecordSpans && finishes(consumer)) {
        writer.wait_until_issued(tiles);  // the lane's end is the sender's
        spans.close(arguments, tiles, writer.barrier());
    }
    if (completes) {
        named_barrier_sync(kStoredBarrier, kStoringThreads);
        if (consumer == 0 && threadIdx.x % kWarpgroupThreads == 0) {
            complete_epoch(arguments);
        }
    }
}

// The warpgroup without products: a warp that loads, and where stores are paced one for each consumer that finishes
// rows.
__device__ __forceinline__ void move_data(const AttentionArguments& arguments, const TileGrid& grid,
                                          Pipeline& pipeline, char* shared) {
    const u32 warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    if (warp == 0) {
        if (threadIdx.x % kWarpThreads == 0) {
            produce(arguments, grid, pipeline, shared);
        }
    } else if (kPaced && warp <= kFinishers) {
        Storer(pipeline, shared, warp - 1).run(arguments, grid);
        if (arguments.complete != Completion::none && pipeline.output_slot != kRefused) {
            named_barrier_arrive(kStoredBarrier, kStoringThreads);
        }
    }
}

}  // namespace xstage

using namespace xstage;

// A team's CTAs are a cluster, so that both are resident.
#if KV_SPLITS > 1
#define TEAM_IS_A_CLUSTER __cluster_dims__(kKvSplits, 1, 1)
#else
#define TEAM_IS_A_CLUSTER
#endif

extern "C" __global__ void TEAM_IS_A_CLUSTER __launch_bounds__(kThreads, 1)
    attention_a2a(const __grid_constant__ AttentionArguments arguments) {
    extern __shared__ __align__(1024) char shared[];
    if (blockIdx.x >= arguments.ctas) {
        receive(arguments.exchange, arguments.call, arguments.receipt, arguments.epoch_bytes,
                blockIdx.x - arguments.ctas, kThreads);
        return;
    }
    Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared + kPipelineOffset);
    const TileGrid grid(arguments.tokens, arguments.heads, kBlockM, arguments.ranks, arguments.rank);
    if (threadIdx.x == 0) {
        pipeline.init();
    }
    if (kKvSplits == 1) {
        __syncthreads();
    } else {
        cluster_sync();
    }
    const u32 warpgroup = warp_uniform(threadIdx.x / kWarpgroupThreads);
    if (warpgroup == kConsumers) {
        release_registers<kLoadRegisters>();
        move_data(arguments, grid, pipeline, shared);
    } else {
        claim_registers<kConsumerRegisters>();
        consume(arguments, grid, pipeline, shared, warpgroup);
    }
}
