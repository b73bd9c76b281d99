// The loader: one thread that finds the CTA's tiles and keeps both operands' copies ahead of the consumers.
//
// Tokens come as plain boxes, since the rows of an expert lie together in the pool; what a ragged tile's box has beyond
// them is computed on and never stored. Of weights a box is a tile's columns, in Linear-1 as two halves. Columns and
// depth beyond the matrix arrive as zeros.
//
// The next tile is found, and its row's counter looked at, in the middle of the one that is loaded: both take a trip
// to the L2 (0.7 us), which the stages that are full then cover. A ticket is taken no earlier, so CTAs end together.
#pragma once

#include "common/store.cuh"
#include "megamoe/pipeline.cuh"
#include "megamoe/row_wait.cuh"

namespace xstage::megamoe {

using OperandPosition = RingPosition<kStages>;

__device__ __forceinline__ u32 depth_steps(const MoeArguments& arguments, Layer layer) {
    const u32 depth = layer == Layer::linear1 ? arguments.hidden : arguments.intermediate;
    return (depth + kBlockK - 1) / kBlockK;
}

#if TICKETS

// All CTAs take the tiles of one order one after the other.
class TileSource {
public:
    __device__ TileSource(const MoeArguments& arguments, Pipeline&)
        : ticket_(&arguments.state->ticket), order_(arguments.scheduler) {}

    __device__ __forceinline__ bool next(Tile& tile) { return order_.at(atomicAdd(ticket_, 1u), tile); }

private:
    u32* ticket_;
    TicketOrder order_;
};

#else

// Tiles are dealt to the CTAs beforehand.
class TileSource {
public:
    __device__ TileSource(const MoeArguments& arguments, Pipeline& pipeline)
        : scheduler_(arguments.scheduler, blockIdx.x, 0, pipeline.positions) {}

    __device__ __forceinline__ bool next(Tile& tile) { return scheduler_.next(tile); }

private:
    Scheduler scheduler_;
};

#endif

class Loader {
public:
    __device__ Loader(const MoeArguments& arguments, Pipeline& pipeline, char* shared)
        : arguments_(arguments), pipeline_(pipeline), shared_(shared), source_(arguments, pipeline) {}

    __device__ void run() {
        find();
        while (found_) {
            const Tile tile = next_;
            put({tile.layer, tile.row, tile.n_tile, tile.expert, tile.tokens});
            if (!ready_) {
                const bool first = tile.layer == Layer::linear1;
                await_row(arguments_, first ? Wait::arrival : Wait::linear1, counters_of(tile), tile.row,
                          expected_of(tile));
            }
            if (tile.layer == Layer::linear2) {
                fence_global_for_bulk();
                load(tile, arguments_.activations, arguments_.weights2, kBlockN);
            } else {
                if (kDispatch) {
                    fence_global_for_bulk();
                }
                load(tile, arguments_.tokens, arguments_.weights1, kBlockN / 2);
            }
        }
        put({Layer::linear1, 0, 0, 0, 0});
    }

private:
    __device__ __forceinline__ void find() {
        found_ = source_.next(next_);
        const bool waits = kDispatch || next_.layer == Layer::linear2;
        ready_ = !(found_ && waits) || read_counter(&counters_of(next_)[next_.row]) >= expected_of(next_);
    }

    __device__ __forceinline__ const u32* counters_of(const Tile& tile) const {
        return tile.layer == Layer::linear1 ? arguments_.arrivals : arguments_.counters;
    }

    __device__ __forceinline__ u32 expected_of(const Tile& tile) const {
        return tile.layer == Layer::linear1 ? tile.tokens : arguments_.scheduler.l1_groups;
    }

    __device__ __forceinline__ void put(const QueuedTile& tile) {
        pipeline_.tile_empty[queue_.stage].wait(queue_.parity ^ 1);
        pipeline_.tiles[queue_.stage] = tile;
        pipeline_.tile_full[queue_.stage].arrive();
        queue_.advance();
    }

    __device__ __forceinline__ void load(const Tile& tile, const TensorMap& rows, const TensorMap& columns,
                                         u32 width) {
        const u32 steps = depth_steps(arguments_, tile.layer);
        const int row = static_cast<int>(tile.row * kBlockM);
        const int column = static_cast<int>(tile.n_tile * width);
        const int expert = static_cast<int>(tile.expert);
#pragma unroll 1
        for (u32 step = 0; step < steps; ++step) {
            char* stage = shared_ + at_.stage * kStageBytes;
            Mbarrier& full = pipeline_.operands_full[at_.stage];
            const int depth = static_cast<int>(step * kBlockK);
            pipeline_.operands_empty[at_.stage].wait(at_.parity ^ 1);
            full.arrive_expecting(kStageBytes);
            load_box(stage, rows, full, depth, row, 0, 0);
            load_box(stage + kRowsBytes, columns, full, depth, column, 0, expert);
            at_.advance();
            if (step == steps / 2) {
                find();
            }
        }
    }

    const MoeArguments& arguments_;
    Pipeline& pipeline_;
    char* shared_;
    TileSource source_;
    RingPosition<kTileRing> queue_;
    OperandPosition at_;
    Tile next_;
    bool found_;
    bool ready_;  // nothing is left to wait for
};

__device__ void load_tiles(const MoeArguments& arguments, Pipeline& pipeline, char* shared) {
    const u32 lane = threadIdx.x % kWarpThreads;
    if (!kTickets) {
        find_positions(arguments.scheduler, blockIdx.x, pipeline.positions, lane, kWarpThreads);
        __syncwarp();
    }
    if (lane == 0) {
        prefetch_map(arguments.tokens);
        prefetch_map(arguments.weights1);
        prefetch_map(arguments.activations);
        prefetch_map(arguments.weights2);
        Loader(arguments, pipeline, shared).run();
    }
    __syncwarp();
}

}  // namespace xstage::megamoe
