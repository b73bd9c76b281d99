// Dispatch: routed tokens are pulled from the ranks' buffers into the pool, by the publisher while it waits.
//
// A CTA takes every gridDim-th pull. Pulls come in the order of the rows of tiles that they fill, so the first rows
// are whole first. A token is pulled once, however many of this rank's experts it is routed to, and stored to each of
// their rows. Pieces of 2 KB pass through shared memory, four of them on their way at a time, which also are four or
// more of neighbouring rows where rows are shorter. A token's scales are its last piece, which goes number by number to
// where the pool has them: those of a block of columns together. When all of a token is stored, its rows of tiles are
// told.
#pragma once

#include "common/signal.cuh"
#include "common/store.cuh"
#include "megamoe/pipeline.cuh"
#include "megamoe/row_wait.cuh"

namespace xstage::megamoe {

// For one thread.
class Dispatch {
public:
    __device__ Dispatch(const MoeArguments& arguments, Pipeline& pipeline, char* shared)
        : arguments_(arguments),
          pipeline_(pipeline),
          pieces_(shared + kPiecesOffset),
          epoch_(*static_cast<volatile u32*>(&arguments.state->epoch) + 1),
          loading_{blockIdx.x, 0},
          storing_{blockIdx.x, 0} {}

    __device__ __forceinline__ bool is_done() const {
        return !kDispatch || storing_.pull >= arguments_.pull_count;
    }

    // Goes a little further, and waits for no rank.
    __device__ __forceinline__ void step() {
        if (loading_.pull < arguments_.pull_count && loaded_ - stored_ < kPieces && origin_is_ready()) {
            load_piece();
        } else if (stored_ != loaded_ && pipeline_.piece_full[stored_ % kPieces].is_complete(stored_ / kPieces % 2)) {
            store_piece();
        }
    }

private:
    struct Place {
        u32 pull;
        u32 offset;  // in the token's row; the row's length: its scales
    };

    __device__ __forceinline__ u32 row_bytes() const { return arguments_.hidden * kElementBytes; }

    __device__ __forceinline__ bool is_scales(const Place& place) const {
        return kScaled && place.offset == row_bytes();
    }

    __device__ __forceinline__ u32 piece_bytes(const Place& place) const {
        return is_scales(place) ? scale_row_bytes(arguments_.hidden) : min(kPieceBytes, row_bytes() - place.offset);
    }

    // Whether a token's last piece.
    __device__ __forceinline__ bool is_last(const Place& place) const {
        return kScaled ? is_scales(place) : place.offset + kPieceBytes >= row_bytes();
    }

    __device__ __forceinline__ void advance(Place& place) const {
        place = is_last(place) ? Place{place.pull + gridDim.x, 0}
                               : Place{place.pull, min(place.offset + kPieceBytes, row_bytes())};
    }

    // Whether the rank's tokens are there; also once its time is over, so that the launch comes to its end.
    __device__ __forceinline__ bool origin_is_ready() {
        const u32 rank = arguments_.pulls[loading_.pull].rank;
        if (ready_ >> rank & 1) {
            return true;
        }
        const u32 seen = load_acquire_system(arguments_.ready[rank]);
        if (seen < epoch_) {
            const u64 now_ns = global_timer_ns();
            waiting_since_ns_ = waiting_since_ns_ == 0 ? now_ns : waiting_since_ns_;
            if (!has_failed(arguments_.fault) && now_ns - waiting_since_ns_ < arguments_.timeout_ns) {
                return false;
            }
            raise_fault(arguments_.fault, Wait::source, rank, kNone, epoch_, seen, arguments_.timeout_ns);
        }
        fence_global_for_bulk();
        waiting_since_ns_ = 0;
        ready_ |= 1u << rank;
        return true;
    }

    __device__ __forceinline__ void load_piece() {
        const Pull pull = arguments_.pulls[loading_.pull];
        const u32 bytes = piece_bytes(loading_);
        Mbarrier& full = pipeline_.piece_full[loaded_ % kPieces];
        bulk_wait_sources_read();  // of what the place held before
        full.arrive_expecting(bytes);
        const char* from = is_scales(loading_)
                               ? arguments_.origin_scales[pull.rank] + static_cast<u64>(pull.token) * bytes
                               : arguments_.origin[pull.rank] + static_cast<u64>(pull.token) * row_bytes() +
                                     loading_.offset;
        bulk_load(pieces_ + loaded_ % kPieces * kPieceBytes, from, bytes, full.address());
        ++loaded_;
        advance(loading_);
    }

    __device__ __forceinline__ void store_piece() {
        const Pull pull = arguments_.pulls[storing_.pull];
        const char* piece = pieces_ + stored_ % kPieces * kPieceBytes;
        for (u32 i = 0; i < pull.rows; ++i) {
            const u32 row = arguments_.pull_rows[pull.first_row + i];
            if (is_scales(storing_)) {
                store_scales(reinterpret_cast<const float*>(piece), row);
            } else {
                bulk_store(arguments_.pool + static_cast<u64>(row) * row_bytes() + storing_.offset, piece,
                           piece_bytes(storing_));
            }
        }
        bulk_commit();
        if (is_last(storing_)) {
            bulk_wait_complete();
            for (u32 i = 0; i < pull.rows; ++i) {
                raise_counter(&arguments_.arrivals[arguments_.pull_rows[pull.first_row + i] / kBlockM]);
            }
        }
        ++stored_;
        advance(storing_);
    }

    __device__ __forceinline__ void store_scales(const float* scales, u32 row) {
        const u32 blocks = scale_blocks(arguments_.hidden);
        for (u32 block = 0; block < blocks; ++block) {
            arguments_.token_scales[static_cast<u64>(block) * arguments_.pool_rows + row] = scales[block];
        }
    }

    const MoeArguments& arguments_;
    Pipeline& pipeline_;
    char* pieces_;
    u32 epoch_;  // that the ranks' words show when their tokens are there
    Place loading_;
    Place storing_;
    u32 loaded_ = 0;  // pieces
    u32 stored_ = 0;
    u32 ready_ = 0;  // ranks, a bit each
    u64 waiting_since_ns_ = 0;
};

}  // namespace xstage::megamoe
