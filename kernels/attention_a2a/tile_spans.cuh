// Spans of a consumer warpgroup, of each of its output tiles: the Q-loop, the wait for a staging slot, and the issue of
// the remote stores (T_RS). They follow each other without gaps. Compiled out unless RECORD_SPANS.
//
// One lane a warpgroup that finishes rows, recorded by its first thread. The recorder lives in shared memory: in
// registers it would push the Q-loop into spilling.
#pragma once

#include "attention_a2a/arguments.cuh"
#include "attention_a2a/config.cuh"
#include "attention_a2a/team.cuh"
#include "common/span.cuh"
#include "common/store.cuh"

namespace xstage {

// Kinds that span.cuh does not name; the numbers are those of xstage_tune.base.spans.SpanKind.
constexpr SpanKind kMainloopSpan = static_cast<SpanKind>(2);
constexpr SpanKind kStagingStallSpan = static_cast<SpanKind>(3);

struct SpanLane {
    SpanRecorder recorder;
    u64 begin_cycles;  // of the current span
    u32 recorded;
};

class TileSpans {
public:
    // In shared memory: the lanes' recorders, a word for each of their threads, their staged records.
    __device__ TileSpans(char* shared, u32 consumer, const AttentionArguments& arguments)
        : finisher_(finisher_of(consumer)),
          lane_(reinterpret_cast<SpanLane*>(shared + kRecordingOffset) + finisher_),
          words_(reinterpret_cast<u32*>(shared + kRecordingOffset + kFinishers * sizeof(SpanLane)) +
                 finisher_ * kWarpgroupThreads),
          records_(reinterpret_cast<SpanRecord*>(shared + kRecordingOffset + kFinishers * sizeof(SpanLane) +
                                                 kFinishers * kWarpgroupThreads * sizeof(u32)) +
                   finisher_ * arguments.span_capacity) {}

    __device__ void open(const AttentionArguments& arguments) {
        if (kRecordSpans && recording()) {
            lane_->recorder = SpanRecorder(records_, arguments.span_capacity, finisher_);
            lane_->recorder.open();
            lane_->begin_cycles = lane_->recorder.begin();
        }
    }

    // Ends the span that began where the last one ended.
    __device__ __forceinline__ void end(SpanKind kind, u32 index) {
        if (kRecordSpans && recording()) {
            lane_->begin_cycles = lane_->recorder.end(kind, index, lane_->begin_cycles);
        }
    }

    // Returns when the SM has passed this warpgroup's register stores on: see round_trip_behind_stores.
    __device__ __forceinline__ void wait_for_stores(u32 barrier) {
        if (kRecordSpans && kStoreFlavour == StoreFlavour::register_stores) {
            const u32 thread = threadIdx.x % kWarpgroupThreads;
            if (round_trip_behind_stores(words_ + thread, thread) != ~0u) {
                named_barrier_sync(barrier, kWarpgroupThreads);
            }
        }
    }

    // Writes the lane's row and records. All threads of the warpgroup, after its last span.
    __device__ void close(const AttentionArguments& arguments, u32 issued, u32 barrier) {
        if (kRecordSpans) {
            const u32 lane = blockIdx.x * kFinishers + finisher_;
            if (recording()) {
                lane_->recorded = lane_->recorder.close(&arguments.lanes[lane], lane, issued);
            }
            named_barrier_sync(barrier, kWarpgroupThreads);
            flush_spans(arguments.spans + static_cast<u64>(lane) * arguments.span_capacity, records_, lane_->recorded,
                        threadIdx.x % kWarpgroupThreads, kWarpgroupThreads);
        }
    }

private:
    static __device__ __forceinline__ bool recording() { return threadIdx.x % kWarpgroupThreads == 0; }

    u32 finisher_;
    SpanLane* lane_;
    u32* words_;
    SpanRecord* records_;
};

}  // namespace xstage
