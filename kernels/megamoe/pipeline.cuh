// How the roles of a CTA hand tiles and buffers to each other.
//
//   loader      finds tiles, copies both operands in when they may begin  -> tile_full, operands_full
//   consumers   products, activation, conversion; two                      -> staged_full
//   storers     each sends one consumer's Linear-2 rows                    -> staged_empty
//   publisher   stores Linear-1 parts, raises the row counter              -> staged_empty
//               pulls routed rows while it has none to store               -> arrivals of a row
//
// No barrier is one of the whole CTA, and the consumers share none: one's epilogue runs under the other's products.
//
// Why nothing deadlocks within a CTA. All roles take the tiles in one order, and each waits only for the roles before
// it in the list, for that tile; or for the roles behind it, for an earlier tile; a storer also looks at the next tile,
// which the loader names as soon as it has loaded the one before. The only wait on another CTA is the loader's, for a
// row counter, before a Linear-2 tile: scheduler.cuh has the argument. Storers and publisher wait for no counter. So all
// tiles before the one that waits are finished, stored and announced meanwhile. With dispatch the loader also waits for
// a row's tokens before a Linear-1 tile. They are pulled by publishers, of this CTA or others, which go on pulling while
// they wait for tiles, and after the last one; and those wait for the ranks' words alone.
#pragma once

#include "common/mbarrier.cuh"
#include "common/ring.cuh"
#include "megamoe/arguments.cuh"
#include "megamoe/config.cuh"

namespace xstage::megamoe {

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
    Mbarrier operands_full[kStages];     // the loader's copies
    Mbarrier operands_empty[kStages];    // every consumer warp: its products with them are done
    Mbarrier staged_full[kConsumers][kStagingSlots];   // the consumer's four warps: their rows are staged
    Mbarrier staged_empty[kConsumers][kStagingSlots];  // its storer, the publisher: read, or not theirs
    Mbarrier piece_full[kPieces];        // the publisher's copies: a piece of a pulled row
    QueuedTile tiles[kTileRing];
    u32 loop_cycles[kConsumers][2];  // of a consumer's last part of either layer, to its storer
    u16 positions[2 * kMostWeight];  // of a dealt order

    static constexpr u32 kReaders = kConsumerWarps + kConsumers + 1;

    // One thread, before a barrier of the CTA.
    __device__ void init() {
        for (u32 place = 0; place < kTileRing; ++place) {
            tile_full[place].init(1);
            tile_empty[place].init(kReaders);
        }
        for (u32 stage = 0; stage < kStages; ++stage) {
            operands_full[stage].init(1);
            operands_empty[stage].init(kConsumerWarps);
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
            loop_cycles[consumer][0] = loop_cycles[consumer][1] = 0;
        }
        fence_barrier_init();
    }
};
static_assert(sizeof(Pipeline) <= kPipelineBytes);

// For a warp whose lanes have all done what the barrier says.
__device__ __forceinline__ void arrive_warp(Mbarrier& barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0) {
        barrier.arrive();
    }
}

// A role's way through the tiles.
class TileQueue {
public:
    __device__ explicit TileQueue(Pipeline& pipeline) : pipeline_(pipeline) {}

    // Whether `next` would return at once.
    __device__ __forceinline__ bool has_next() const { return pipeline_.tile_full[at_.stage].is_complete(at_.parity); }

    // The next tile, for one thread that stands for its warp.
    __device__ __forceinline__ bool next_alone(QueuedTile& tile) {
        pipeline_.tile_full[at_.stage].wait(at_.parity);
        tile = pipeline_.tiles[at_.stage];
        pipeline_.tile_empty[at_.stage].arrive();
        at_.advance();
        return tile.tokens != 0;
    }

    // The next tile, for all lanes of a warp; false at the end.
    __device__ __forceinline__ bool next(QueuedTile& tile) {
        pipeline_.tile_full[at_.stage].wait(at_.parity);
        tile = pipeline_.tiles[at_.stage];
        arrive_warp(pipeline_.tile_empty[at_.stage]);
        at_.advance();
        return tile.tokens != 0;
    }

private:
    Pipeline& pipeline_;
    RingPosition<kTileRing> at_;
};

__device__ __forceinline__ u32 layer_index(Layer layer) { return layer == Layer::linear1 ? 0 : 1; }

// Rows of a tile that are a consumer's: 0 where it has no part in a ragged tile.
__device__ __forceinline__ u32 rows_of_part(const QueuedTile& tile, u32 consumer) {
    const u32 first = kSplitColumns ? 0 : consumer * kPartRows;
    return tile.tokens > first ? min(kPartRows, tile.tokens - first) : 0;
}

// Where they begin in the pool.
__device__ __forceinline__ u32 pool_row_of_part(const QueuedTile& tile, u32 consumer) {
    return tile.row * kBlockM + (kSplitColumns ? 0 : consumer * kPartRows);
}

// First column of a consumer's part of a tile of `width` columns.
__device__ __forceinline__ u32 column_of_part(const QueuedTile& tile, u32 consumer, u32 width) {
    return tile.n_tile * width + (kSplitColumns ? consumer * (width / 2) : 0);
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
