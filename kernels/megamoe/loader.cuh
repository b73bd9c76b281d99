// The loader: one thread that finds the CTA's tiles and keeps both operands' copies ahead of the consumers.
//
// Tokens come as plain boxes, since the rows of an expert lie together in the pool; what a ragged tile's box has beyond
// them is computed on and never stored. Of weights a box is a tile's columns, in Linear-1 as two halves. Columns and
// depth beyond the matrix arrive as zeros. With scales those of the rows are copied beside them, and those of the
// weights are read before the wait for a free stage, which covers the way to them.
//
// The next tile is found, and its row's counter looked at, in the middle of the one that is loaded: both take a trip
// to the L2 (0.7 us), which the stages that are full then cover. A ticket is taken no earlier, so CTAs end together.
#pragma once

#include "common/store.cuh"
#include "megamoe/pipeline.cuh"
#include "megamoe/row_wait.cuh"
#include "megamoe/scales.cuh"

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
        const WeightScales scales = weight_scales(tile, steps);
#pragma unroll 1
        for (u32 step = 0; step < steps; ++step) {
            char* stage = shared_ + at_.stage * kStageBytes;
            Mbarrier& full = pipeline_.operands_full[0][at_.stage];
            const int depth = static_cast<int>(step * kBlockK);
            pipeline_.operands_empty[0][at_.stage].wait(at_.parity ^ 1);
            full.arrive_expecting(kColumnPieceBytes + (kScaled ? 0 : kRowsBytes));
            load_box(stage + kRowsBytes, columns, full, depth, column, 0, expert);
            if (kScaled) {
                const bool first = tile.layer == Layer::linear1;
                load_second_piece(columns, depth, first ? column : column + static_cast<int>(kProductColumns), first,
                                  expert, scales, step);
                full.arrive_expecting(kRowsBytes + kRowScalesBytes);
                bulk_load(shared_ + kScalesOffset + at_.stage * kStageScalesBytes, row_scales(tile, step),
                          kRowScalesBytes, full.address());
            }
            load_box(stage, rows, full, depth, row, 0, 0);
            at_.advance();
            if (step == steps / 2) {
                find();
            }
        }
    }

    // Of the weights of a tile's first product, step by step, and how much further those of the second are.
    struct WeightScales {
        const float* first;
        u32 distance;
    };

    // A second product beyond the matrix has the first's: it is of zeros.
    __device__ __forceinline__ WeightScales weight_scales(const Tile& tile, u32 steps) const {
        if (tile.layer == Layer::linear1) {
            const u32 blocks = scale_blocks(arguments_.intermediate);
            const u64 row = static_cast<u64>(tile.expert) * 2 * blocks + tile.n_tile;
            return {arguments_.weight_scales1 + row * steps, blocks * steps};
        }
        const u32 blocks = scale_blocks(arguments_.hidden);
        const u64 row = static_cast<u64>(tile.expert) * blocks + 2 * tile.n_tile;
        return {arguments_.weight_scales2 + row * steps, 2 * tile.n_tile + 1 < blocks ? steps : 0};
    }

    // Of a stage the second piece of its weights, in Linear-1 up, in Linear-2 the next columns; and the scales of both,
    // read before the wait, which covers the way to them. Behind it the rows are free too.
    __device__ __forceinline__ void load_second_piece(const TensorMap& columns, int depth, int column, int which,
                                                      int expert, const WeightScales& scales, u32 step) {
        const float of_first = load_constant(scales.first + step);
        const float of_second = load_constant(scales.first + scales.distance + step);
        Mbarrier& full = pipeline_.operands_full[kColumnPieces - 1][at_.stage];
        pipeline_.operands_empty[kColumnPieces - 1][at_.stage].wait(at_.parity ^ 1);
        const u32 place = shared_address(shared_) + kScalesOffset + at_.stage * kStageScalesBytes + kRowScalesBytes;
        store_shared_float(place, of_first);
        store_shared_float(place + sizeof(float), of_second);
        full.arrive_expecting(kColumnPieceBytes);
        load_box(shared_ + at_.stage * kStageBytes + kRowsBytes + kColumnPieceBytes, columns, full, depth, column,
                 which, expert);
    }

    // Of a tile's rows at a step.
    __device__ __forceinline__ const float* row_scales(const Tile& tile, u32 step) const {
        const float* scales =
            tile.layer == Layer::linear1 ? arguments_.token_scales : arguments_.activation_scales;
        return scales + static_cast<u64>(step) * arguments_.pool_rows + tile.row * kBlockM;
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
