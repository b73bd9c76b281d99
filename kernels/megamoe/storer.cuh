// The storers, one warp a consumer: send its staged Linear-2 rows to the ranks whose tokens they are.
//
// A row goes to [token, top_k, hidden] of its rank, whatever memory that rank's base pointer names, so no two rows
// share a place and the order of arrival makes no difference. A slot is free once its rows are in registers, or read
// by the copy engine; what then waits for the path is the warp, not the consumer.
//
// Stores that leave faster than the path drains fill the memory system's queues, and the loads of operands wait behind
// them: on the host path of an H200 with a quarter of Combine remote, Linear-1 mainloops took 53 to 76 us in place of
// 47 while no consumer waited for a slot, and an interleaved layer 4,582 us. So a part's stores are spread over its
// consumer's next mainloop, as long as the last one of that layer took: 3,919 us, as if nothing were remote. Behind the
// last tile nothing is gained by waiting. What a mainloop waited for its first operands does not count: another CTA's
// delay would become this one's, and this one's the other's again, ever longer.
#pragma once

#include "common/store.cuh"
#include "megamoe/role_spans.cuh"

namespace xstage::megamoe {

class Storer {
public:
    __device__ Storer(const MoeArguments& arguments, Pipeline& pipeline, char* shared, u32 consumer)
        : arguments_(arguments), pipeline_(pipeline), shared_(shared), consumer_(consumer) {}

    __device__ void run() {
        TileQueue queue(pipeline_);
        RingPosition<kStagingSlots> at;
        RoleSpans spans(shared_, kConsumers + consumer_, arguments_);
        spans.open();
        QueuedTile tile, coming;
        for (bool more = queue.next(tile); more; tile = coming) {
            pipeline_.staged_full[consumer_][at.stage].wait(at.parity);
            more = queue.next(coming);
            spans.begin();
            if (tile.layer == Layer::linear2) {
                const u32 cycles = more ? pipeline_.loop_cycles[consumer_][layer_index(coming.layer)] : 0;
                const char* slot = staging_slot(shared_, consumer_, at.stage);
                if (kStoreFlavour == StoreFlavour::register_stores) {
                    store_rows(tile, slot, cycles);
                    spans.wait_for_stores();
                } else {
                    copy_rows(tile, slot, cycles);
                }
                spans.end(SpanKind::issue, tile.layer);
            }
            arrive_warp(pipeline_.staged_empty[consumer_][at.stage]);
            at.advance();
            spans.end_tile();
        }
        if (kStoreFlavour == StoreFlavour::bulk_copies) {
            bulk_wait_complete();
        }
        spans.close();
    }

private:
    static constexpr u32 kRowVectors = kPartColumns * 2 / 16;
    static constexpr u32 kRowsAtOnce = kWarpThreads / kRowVectors;  // that the warp stores with one instruction
    static constexpr u32 kInFlight = 4;                             // vectors of a thread
    static constexpr u32 kCopiesAtOnce = 4;
    static_assert(kWarpThreads % (kInFlight * kRowsAtOnce) == 0);

    // Bytes of a row of the part that exist.
    __device__ __forceinline__ u32 row_bytes(const QueuedTile& tile, u32 column) const {
        return column < arguments_.hidden ? min(columns_of_part(tile), arguments_.hidden - column) * 2 : 0;
    }

    // Where a row of the part goes: its first column. Null behind the last row.
    __device__ __forceinline__ char* place(const QueuedTile& tile, u32 column, u32 row) const {
        if (row >= rows_of_part(tile, consumer_)) {
            return nullptr;
        }
        const RowSource source = arguments_.sources[pool_row_of_part(tile, consumer_) + row];
        return arguments_.destination[source.rank] + (static_cast<u64>(source.slot) * arguments_.hidden + column) * 2;
    }

    // When rows leave: so many cycles apart that all of them take their part of `cycles`.
    class Pace {
    public:
        __device__ __forceinline__ Pace(u32 cycles, u32 pace)
            : between_(static_cast<u32>(static_cast<u64>(cycles) * pace / 64 / kPartRows)), next_(sm_clock()) {}

        __device__ __forceinline__ void wait(u32 rows) {
            spin_until_cycle(next_);
            next_ += between_ * rows;
        }

    private:
        u32 between_;
        u64 next_;
    };

    // Each lane finds the place of one of 32 rows; a row is stored by as many lanes as it has vectors.
    __device__ __forceinline__ void store_rows(const QueuedTile& tile, const char* slot, u32 cycles) const {
        const u32 vector = threadIdx.x % kWarpThreads % kRowVectors;
        const u32 row_at_once = threadIdx.x % kWarpThreads / kRowVectors;
        const u32 column = column_of_part(tile, consumer_, kBlockN);
        const bool exists = vector * 16 < row_bytes(tile, column);
        Pace pace(cycles, arguments_.pace);
#pragma unroll 1
        for (u32 first = 0; first < rows_of_part(tile, consumer_); first += kWarpThreads) {
            const u64 mine = reinterpret_cast<u64>(place(tile, column, first + threadIdx.x % kWarpThreads));
#pragma unroll 1
            for (u32 row = row_at_once; row < kWarpThreads; row += kInFlight * kRowsAtOnce) {
                uint4 values[kInFlight];
#pragma unroll
                for (u32 i = 0; i < kInFlight; ++i) {
                    values[i] = load_shared_v4(staged_vector(slot, first + row + i * kRowsAtOnce, vector));
                }
#pragma unroll
                for (u32 i = 0; i < kInFlight; ++i) {
                    const u64 to = __shfl_sync(0xffffffffu, mine, row + i * kRowsAtOnce);
                    pace.wait(kRowsAtOnce);
                    if (to != 0 && exists) {
                        store_v4(reinterpret_cast<char*>(to) + vector * 16, values[i]);
                    }
                }
            }
        }
    }

    // One copy a row.
    __device__ __forceinline__ void copy_rows(const QueuedTile& tile, const char* slot, u32 cycles) const {
        const u32 column = column_of_part(tile, consumer_, kBlockN);
        const u32 bytes = row_bytes(tile, column);
        Pace pace(cycles, arguments_.pace);
#pragma unroll 1
        for (u32 first = 0; bytes != 0 && first < rows_of_part(tile, consumer_); first += kWarpThreads) {
            const u32 lane = threadIdx.x % kWarpThreads;
            char* mine = place(tile, column, first + lane);
#pragma unroll 1
            for (u32 turn = 0; turn < kWarpThreads; turn += kCopiesAtOnce) {
                pace.wait(kCopiesAtOnce);
                if (lane / kCopiesAtOnce == turn / kCopiesAtOnce && mine != nullptr) {
                    bulk_store(mine, slot + (first + lane) * kSlotRowBytes, bytes);
                }
            }
        }
        bulk_commit();
        bulk_wait_sources_read();
    }

    const MoeArguments& arguments_;
    Pipeline& pipeline_;
    char* shared_;
    u32 consumer_;
};

}  // namespace xstage::megamoe
