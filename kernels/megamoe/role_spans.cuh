// Spans of a role, tile by tile: of a consumer its wait for operands, its products, and its wait for a slot; of a
// storer the issue of a Linear-2 part (T_RS). Compiled out unless RECORD_SPANS.
//
// A lane is one role, recorded by the first thread of its first warp: both consumers, then their storers. A span's
// index is twice the tile's number on its CTA, and 1 more of Linear-2. The recorder lives in shared memory: beside the
// sums there are no registers for it.
#pragma once

#include "common/span.cuh"
#include "common/store.cuh"
#include "megamoe/pipeline.cuh"

namespace xstage::megamoe {

// Kinds that span.cuh does not name; the numbers are those of xstage_tune.base.spans.SpanKind.
constexpr SpanKind kMainloopSpan = static_cast<SpanKind>(2);
constexpr SpanKind kStagingStallSpan = static_cast<SpanKind>(3);
constexpr SpanKind kDependencyWaitSpan = static_cast<SpanKind>(4);

constexpr u32 kLanes = 2 * kConsumers;

struct SpanLane {
    SpanRecorder recorder;
    u64 begin_cycles;  // of the current span
    u32 tiles;
    u32 recorded;
};
constexpr u32 kLanesBytes = kLanes * sizeof(SpanLane) + kConsumers * kWarpThreads * sizeof(u32);

class RoleSpans {
public:
    __device__ RoleSpans(char* shared, u32 lane, const MoeArguments& arguments) : arguments_(arguments), lane_(lane) {
        if (kRecordSpans) {
            char* lanes = shared + kRecordingOffset;
            state_ = reinterpret_cast<SpanLane*>(lanes) + lane;
            words_ = reinterpret_cast<u32*>(lanes + kLanes * sizeof(SpanLane)) + lane % kConsumers * kWarpThreads;
            records_ = reinterpret_cast<SpanRecord*>(lanes + kLanesBytes) + lane * arguments.span_capacity;
        }
    }

    __device__ void open() {
        if (kRecordSpans && recording()) {
            state_->recorder = SpanRecorder(records_, arguments_.span_capacity, lane_);
            state_->recorder.open();
            state_->begin_cycles = state_->recorder.begin();
            state_->tiles = 0;
        }
    }

    // The next span begins now, and no earlier.
    __device__ __forceinline__ void begin() {
        if (kRecordSpans && recording()) {
            state_->begin_cycles = state_->recorder.begin();
        }
    }

    // Ends the span that began where the last one ended.
    __device__ __forceinline__ void end(SpanKind kind, Layer layer) {
        if (kRecordSpans && recording()) {
            const u32 index = 2 * state_->tiles + (layer == Layer::linear2);
            state_->begin_cycles = state_->recorder.end(kind, index, state_->begin_cycles);
        }
    }

    __device__ __forceinline__ void end_tile() {
        if (kRecordSpans && recording()) {
            ++state_->tiles;
        }
    }

    // Returns when the SM has passed a storer's register stores on: see round_trip_behind_stores.
    __device__ __forceinline__ void wait_for_stores() {
        if (kRecordSpans && kStoreFlavour == StoreFlavour::register_stores) {
            const u32 thread = threadIdx.x % kWarpThreads;
            if (round_trip_behind_stores(words_ + thread, thread) != ~0u) {
                __syncwarp();
            }
        }
    }

    // Writes the lane's row and records. All threads of the role's first warp, after its last span.
    __device__ void close() {
        if (kRecordSpans && threadIdx.x % role_threads() < kWarpThreads) {
            const u32 lane = blockIdx.x * kLanes + lane_;
            if (recording()) {
                state_->recorded = state_->recorder.close(&arguments_.lanes[lane], lane, state_->tiles);
            }
            __syncwarp();
            flush_spans(arguments_.spans + static_cast<u64>(lane) * arguments_.span_capacity, records_,
                        state_->recorded, threadIdx.x % kWarpThreads, kWarpThreads);
        }
    }

private:
    __device__ __forceinline__ u32 role_threads() const {
        return lane_ < kConsumers ? kWarpgroupThreads : kWarpThreads;
    }
    __device__ __forceinline__ bool recording() const { return threadIdx.x % role_threads() == 0; }

    const MoeArguments& arguments_;
    u32 lane_;
    SpanLane* state_;
    u32* words_;
    SpanRecord* records_;
};

}  // namespace xstage::megamoe
