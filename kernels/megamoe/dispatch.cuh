// Dispatch: routed tokens are pulled from the ranks' buffers into the pool, by the publisher's warp while it waits.
//
// A CTA takes every gridDim-th pull. Pulls come in the order of the rows of tiles that they fill, so the first rows
// are whole first. A token is pulled once, however many of this rank's experts it is routed to, and stored to each of
// their rows. It passes through shared memory in pieces of 2 KB, kPieces - 1 of them on their way at a time, of at most
// four tokens. A token's scales are its last piece, which goes number by number to where the pool has them: those of a
// block of columns together. When all of a token is stored, its rows of tiles are told.
//
// What takes time is what one thread would wait for: a row's counter (0.7 us each, behind a fence), the end of the
// copies to the pool, a token's 32 or more scales for each of its rows. So the lanes share it. Eight lanes have a token,
// one each of its rows, whose copies and counters are theirs; scales are stored by all. Bulk copies are waited for by
// the thread that queued them: a token is told of when the next ones are on their way, and no other's copies are waited
// for with it.
#pragma once

#include "common/signal.cuh"
#include "common/store.cuh"
#include "megamoe/pipeline.cuh"
#include "megamoe/row_wait.cuh"

namespace xstage::megamoe {

// For a warp, whose lanes all call the same.
class Dispatch {
public:
    __device__ Dispatch(const MoeArguments& arguments, Pipeline& pipeline, char* shared)
        : arguments_(arguments), pipeline_(pipeline), pieces_(shared + kPiecesOffset) {
        if (kDispatch) {
            epoch_ = *static_cast<volatile u32*>(&arguments.state->epoch) + 1;
            const u32 pulls = arguments.counted_pulls == nullptr ? arguments.pull_count : *arguments.counted_pulls;
            tokens_ = (pulls + gridDim.x - 1 - blockIdx.x) / gridDim.x;
            coming_ = pull_of(0);
        }
    }

    // Whether all of this CTA's tokens have been told of.
    __device__ __forceinline__ bool is_done() const { return !kDispatch || told_ == tokens_; }

    // Goes a little further, and waits for no rank.
    __device__ __forceinline__ void step() {
        if (may_load() && origin_is_ready()) {
            load_piece();
        } else if (stored_ != loaded_ && piece_is_full()) {
            store_piece();
        } else if (told_ != storing_.token) {
            tell();
        }
    }

private:
    struct Place {
        u32 token;   // of this CTA
        u32 offset;  // in the token's row; the row's length: its scales
    };

    static constexpr u32 kLanesOfToken = 8;
    static constexpr u32 kTokens = kWarpThreads / kLanesOfToken;  // that are loaded and not told of, at most

    __device__ __forceinline__ u32 lane() const { return threadIdx.x % kWarpThreads; }
    __device__ __forceinline__ u32 row_bytes() const { return arguments_.hidden * kElementBytes; }

    // Whether the lane is one of a token's.
    __device__ __forceinline__ bool has(u32 token) const { return lane() / kLanesOfToken == token % kTokens; }

    // Nothing behind the last one.
    __device__ __forceinline__ Pull pull_of(u32 token) const {
        return token < tokens_ ? arguments_.pulls[blockIdx.x + token * gridDim.x] : Pull{0, 0, 0, 0};
    }

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
        place = is_last(place) ? Place{place.token + 1, 0}
                               : Place{place.token, min(place.offset + kPieceBytes, row_bytes())};
    }

    // Whether there is a place for the next piece, and for its token's rows. One piece fewer than there are places: so
    // the last copy out of the next place is not the one just queued.
    __device__ __forceinline__ bool may_load() const {
        return loading_.token < tokens_ && loaded_ - stored_ < kPieces - 1 &&
               (loading_.offset != 0 || loading_.token - storing_.token < kTokens);
    }

    __device__ __forceinline__ bool piece_is_full() const {
        return __all_sync(kWholeWarp, pipeline_.piece_full[stored_ % kPieces].is_complete(stored_ / kPieces % 2));
    }

    // Whether the rank's tokens are there; also once its time is over, so that the launch comes to its end.
    __device__ __forceinline__ bool origin_is_ready() {
        const u32 rank = loading_.offset == 0 ? coming_.rank : pull_.rank;
        if ((ready_ >> rank & 1) == 0) {
            const bool ready = lane() == 0 && look_at(rank);
            ready_ |= __shfl_sync(kWholeWarp, static_cast<u32>(ready), 0) << rank;
        }
        return ready_ >> rank & 1;
    }

    // By the lane that loads.
    __device__ __forceinline__ bool look_at(u32 rank) {
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
        return true;
    }

    // The next token's lanes take it up.
    __device__ __forceinline__ void begin_token() {
        if (loading_.token - told_ == kTokens) {
            tell();
        }
        pull_ = coming_;
        coming_ = pull_of(loading_.token + 1);
        if (has(loading_.token)) {
            const u32 mine = lane() % kLanesOfToken;
            row_ = mine < pull_.rows ? arguments_.pull_rows[pull_.first_row + mine] : kNone;
        }
    }

    __device__ __forceinline__ void load_piece() {
        if (loading_.offset == 0) {
            begin_token();
        }
        bulk_wait_sources_read_but<1>();  // of what the place held before
        __syncwarp();
        if (lane() == 0) {
            const u32 bytes = piece_bytes(loading_);
            Mbarrier& full = pipeline_.piece_full[loaded_ % kPieces];
            full.arrive_expecting(bytes);
            const char* from = is_scales(loading_)
                                   ? arguments_.origin_scales[pull_.rank] + static_cast<u64>(pull_.token) * bytes
                                   : arguments_.origin[pull_.rank] + static_cast<u64>(pull_.token) * row_bytes() +
                                         loading_.offset;
            bulk_load(pieces_ + loaded_ % kPieces * kPieceBytes, from, bytes, full.address());
        }
        ++loaded_;
        advance(loading_);
    }

    __device__ __forceinline__ void store_piece() {
        const char* piece = pieces_ + stored_ % kPieces * kPieceBytes;
        const u32 token = storing_.token;
        const Pull pull = pull_of(token);
        if (is_scales(storing_)) {
            for (u32 i = 0; i < pull.rows; ++i) {
                store_scales(reinterpret_cast<const float*>(piece), arguments_.pull_rows[pull.first_row + i]);
            }
        } else if (has(token)) {
            for_rows(pull, [&](u32 row) {
                bulk_store(arguments_.pool + static_cast<u64>(row) * row_bytes() + storing_.offset, piece,
                           piece_bytes(storing_));
            });
        }
        bulk_commit();  // by every lane, so that all have as many groups
        __syncwarp();
        ++stored_;
        advance(storing_);
    }

    // The token that was stored longest ago.
    __device__ __forceinline__ void tell() {
        const Pull pull = pull_of(told_);
        if (has(told_)) {
            bulk_wait_complete();
        }
        __syncwarp();  // also behind the other lanes' scales
        if (has(told_)) {
            for_rows(pull, [&](u32 row) { raise_counter(&arguments_.arrivals[row / kBlockM]); });
        }
        __syncwarp();
        ++told_;
    }

    // Each of the lane's rows of its token.
    template <typename Action>
    __device__ __forceinline__ void for_rows(const Pull& pull, Action action) const {
        if (row_ != kNone) {
            action(row_);
        }
        for (u32 i = lane() % kLanesOfToken + kLanesOfToken; i < pull.rows; i += kLanesOfToken) {
            action(arguments_.pull_rows[pull.first_row + i]);
        }
    }

    __device__ __forceinline__ void store_scales(const float* scales, u32 row) const {
        const u32 blocks = scale_blocks(arguments_.hidden);
        for (u32 block = lane(); block < blocks; block += kWarpThreads) {
            arguments_.token_scales[static_cast<u64>(block) * arguments_.pool_rows + row] = scales[block];
        }
    }

    const MoeArguments& arguments_;
    Pipeline& pipeline_;
    char* pieces_;
    u32 epoch_ = 0;   // that the ranks' words show when their tokens are there
    u32 tokens_ = 0;  // of this CTA
    Place loading_{0, 0};
    Place storing_{0, 0};
    u32 told_ = 0;    // tokens
    u32 loaded_ = 0;  // pieces
    u32 stored_ = 0;
    Pull pull_{};    // that is loaded,
    Pull coming_{};  // and the one behind it, read ahead
    u32 row_ = kNone;  // the lane's first row of its token
    u32 ready_ = 0;  // ranks, a bit each
    u64 waiting_since_ns_ = 0;
};

}  // namespace xstage::megamoe
