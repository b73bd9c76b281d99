// How the roles of a CTA hand tiles and buffers to each other.
//
//   loader      finds tiles, copies both operands in when they may begin  -> tile_full, operands_full
//   consumers   products, activation, conversion; two                      -> staged_full
//   storers     each sends one consumer's Linear-2 rows                    -> staged_empty
//   publisher   stores Linear-1 parts, raises the row counter              -> staged_empty
//               pulls routed rows while it has none to store               -> arrivals of a row
//
// No barrier is one of the whole CTA, and the consumers share none: one's epilogue runs under the other's products. But
// in e4m3 a tile of at most 64 rows is shared: each has one of its products, and in Linear-1 they exchange halves.
//
// Why nothing deadlocks within a CTA. All roles take the tiles in one order, and each waits only for the roles before
// it in the list, for that tile; or for the roles behind it, for an earlier tile; a storer also looks at the next tile,
// which the loader names as soon as it has loaded the one before. Consumers that exchange wait for each other at the
// same tile; the one behind waits for nothing of the other's. The only wait on another CTA is the loader's, for a row
// counter, before a Linear-2 tile: scheduler.cuh has the argument. Storers and publisher wait for no counter. So all
// tiles before the one that waits are finished, stored and announced meanwhile. With dispatch the loader also waits for
// a row's tokens before a Linear-1 tile. They are pulled by publishers, of this CTA or others, which go on pulling
// while they wait for tiles, and after the last one; and those wait for the ranks' words alone.
#pragma once

#include "common/mbarrier.cuh"
#include "common/ring.cuh"
#include "megamoe/arguments.cuh"
#include "megamoe/config.cuh"

namespace xstage::megamoe {

constexpr u32 kWholeWarp = 0xffffffff;

// A tile for the roles; without rows, the end.
struct QueuedTile {
    Layer layer;
    u32 row;
    u32 n_tile;
    u32 expert;
    u32 tokens;
};

struct Pipeline {
    Mbarrier tile_full[kTileRing];       // the loader: the tile is there
    Mbarrier tile_empty[kTileRing];      // every warp of the other roles: it has read the tile
    // Of each piece of a stage's weights; the rows come with the first and are free with the last.
    Mbarrier operands_full[kColumnPieces][kStages];   // the loader's copies
    Mbarrier operands_empty[kColumnPieces][kStages];  // every consumer warp: its products with them are done
    Mbarrier staged_full[kConsumers][kStagingSlots];   // the consumer's four warps: their rows are staged
    Mbarrier staged_empty[kConsumers][kStagingSlots];  // its storer, the publisher: read, or not theirs
    Mbarrier piece_full[kPieces];        // the publisher's copies: a piece of a pulled row
    QueuedTile tiles[kTileRing];
    // Of a consumer's last part of either layer, from its first operands on: to its storer (storer.cuh).
    u32 loop_cycles[kConsumers][2];
    u32 loop_begin[kConsumers];  // of the one that it is at: no register is free for it
    u16 positions[2 * kMostWeight];  // of a dealt order

    static constexpr u32 kReaders = kConsumerWarps + kConsumers + 1;

    // One thread, before a barrier of the CTA.
    __device__ void init() {
        for (u32 place = 0; place < kTileRing; ++place) {
            tile_full[place].init(1);
            tile_empty[place].init(kReaders);
        }
        for (u32 piece = 0; piece < kColumnPieces; ++piece) {
            for (u32 stage = 0; stage < kStages; ++stage) {
                // The first piece's weights and the rows are announced one after the other.
                operands_full[piece][stage].init(kColumnPieces > 1 && piece == 0 ? 2 : 1);
                operands_empty[piece][stage].init(kConsumerWarps);
            }
        }
        for (u32 consumer = 0; consumer < kConsumers; ++consumer) {
            for (u32 slot = 0; slot < kStagingSlots; ++slot) {
                staged_full[consumer][slot].init(4);
                staged_empty[consumer][slot].init(2);
            }
        }
        for (u32 piece = 0; piece < kPieces; ++piece) {
            piece_full[piece].init(1);
        }
        for (u32 consumer = 0; consumer < kConsumers; ++consumer) {
            loop_cycles[consumer][0] = loop_cycles[consumer][1] = loop_begin[consumer] = 0;
        }
        fence_barrier_init();
    }
};
static_assert(sizeof(Pipeline) <= kPipelineBytes);

// The thread's number, read anew: what is computed from it is not kept over a tile, for which there are no registers.
__device__ __forceinline__ u32 thread_anew() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// For a warp whose lanes have all done what the barrier says.
__device__ __forceinline__ void arrive_warp(Mbarrier& barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0) {
        barrier.arrive();
    }
}

// A role's way through the tiles. One number says where it is: there are no registers for more beside the sums.
class TileQueue {
public:
    __device__ explicit TileQueue(Pipeline& pipeline) : pipeline_(pipeline) {}

    // Whether `next` would return at once; for all lanes of a warp alike.
    __device__ __forceinline__ bool has_next() const {
        return __all_sync(kWholeWarp, pipeline_.tile_full[place()].is_complete(parity()));
    }

    // Where the role's last tile is staged.
    __device__ __forceinline__ RingPosition<kStagingSlots> slot() const {
        return {(taken_ - 1) % kStagingSlots, (taken_ - 1) / kStagingSlots % 2};
    }

    // The next tile, for all lanes of a warp; false at the end.
    __device__ __forceinline__ bool next(QueuedTile& tile) {
        pipeline_.tile_full[place()].wait(parity());
        tile = pipeline_.tiles[place()];
        arrive_warp(pipeline_.tile_empty[place()]);
        ++taken_;
        return tile.tokens != 0;
    }

private:
    __device__ __forceinline__ u32 place() const { return taken_ % kTileRing; }
    __device__ __forceinline__ u32 parity() const { return taken_ / kTileRing % 2; }

    Pipeline& pipeline_;
    u32 taken_ = 0;
};

__device__ __forceinline__ u32 layer_index(Layer layer) { return layer == Layer::linear1 ? 0 : 1; }

// Whether both consumers have all rows of a tile, and one product each: with scales, where one would have none.
__device__ __forceinline__ bool is_shared(const QueuedTile& tile) { return kScaled && tile.tokens <= kPartRows; }

__device__ __forceinline__ bool is_split_by_columns(const QueuedTile& tile) {
    return kSplitColumns || is_shared(tile);
}

// First row of a consumer's part among the tile's.
__device__ __forceinline__ u32 row_of_part(const QueuedTile& tile, u32 consumer) {
    return is_split_by_columns(tile) ? 0 : consumer * kPartRows;
}

// Rows of a tile that are a consumer's: 0 where it has no part in a ragged tile.
__device__ __forceinline__ u32 rows_of_part(const QueuedTile& tile, u32 consumer) {
    const u32 first = row_of_part(tile, consumer);
    return tile.tokens > first ? min(kPartRows, tile.tokens - first) : 0;
}

// Where they begin in the pool.
__device__ __forceinline__ u32 pool_row_of_part(const QueuedTile& tile, u32 consumer) {
    return tile.row * kBlockM + row_of_part(tile, consumer);
}

// First column of a consumer's part of a tile of `width` columns.
__device__ __forceinline__ u32 column_of_part(const QueuedTile& tile, u32 consumer, u32 width) {
    return tile.n_tile * width + (is_split_by_columns(tile) ? consumer * (width / 2) : 0);
}

// Columns of a part of a Linear-2 tile.
__device__ __forceinline__ u32 columns_of_part(const QueuedTile& tile) {
    return is_shared(tile) ? kPartColumns / 2 : kPartColumns;
}

__device__ __forceinline__ char* staging_slot(char* shared, u32 consumer, u32 slot) {
    return shared + kStagingOffset + (slot * kConsumers + consumer) * kSlotBytes;
}

// 16 bytes of a staged Linear-2 row.
__device__ __forceinline__ u32 staged_vector(const char* slot, u32 row, u32 vector) {
    return shared_address(slot) + row * kSlotRowBytes + vector * 16;
}

// 16 bytes of a staged Linear-1 row, of which tensor copies take columns of 128 bytes, swizzled.
__device__ __forceinline__ u32 staged_activation(const char* slot, u32 row, u32 vector) {
    constexpr u32 kVectors = kSwizzleRowBytes / 16;
    return shared_address(slot) + vector / kVectors * kChunkBytes + row * kSwizzleRowBytes +
           ((vector % kVectors) ^ (row % 8)) * 16;
}

}  // namespace xstage::megamoe
