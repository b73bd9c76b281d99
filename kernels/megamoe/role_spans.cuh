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
    __device__ RoleSpans(char* shared, u32 lane, const MoeArguments& arguments)
        : arguments_(arguments), lanes_(shared + kRecordingOffset), lane_(lane) {}

    __device__ void open() {
        if (kRecordSpans && recording()) {
            state().recorder = SpanRecorder(records(), arguments_.span_capacity, lane_);
            state().recorder.open();
            state().begin_cycles = state().recorder.begin();
            state().tiles = 0;
        }
    }

    // The next span begins now, and no earlier.
    __device__ __forceinline__ void begin() {
        if (kRecordSpans && recording()) {
            state().begin_cycles = state().recorder.begin();
        }
    }

    // Ends the span that began where the last one ended.
    __device__ __forceinline__ void end(SpanKind kind, Layer layer) {
        if (kRecordSpans && recording()) {
            const u32 index = 2 * state().tiles + (layer == Layer::linear2);
            state().begin_cycles = state().recorder.end(kind, index, state().begin_cycles);
        }
    }

    __device__ __forceinline__ void end_tile() {
        if (kRecordSpans && recording()) {
            ++state().tiles;
        }
    }

    // Returns when the SM has passed a storer's register stores on: see round_trip_behind_stores.
    __device__ __forceinline__ void wait_for_stores() {
        if (kRecordSpans && kStoreFlavour == StoreFlavour::register_stores) {
            const u32 thread = threadIdx.x % kWarpThreads;
            if (round_trip_behind_stores(words() + thread, thread) != ~0u) {
                __syncwarp();
            }
        }
    }

    // Writes the lane's row and records. All threads of the role's first warp, after its last span.
    __device__ void close() {
        if (kRecordSpans && threadIdx.x % role_threads() < kWarpThreads) {
            const u32 lane = blockIdx.x * kLanes + lane_;
            if (recording()) {
                state().recorded = state().recorder.close(&arguments_.lanes[lane], lane, state().tiles);
            }
            __syncwarp();
            flush_spans(arguments_.spans + static_cast<u64>(lane) * arguments_.span_capacity, records(),
                        state().recorded, threadIdx.x % kWarpThreads, kWarpThreads);
        }
    }

private:
    __device__ __forceinline__ u32 role_threads() const {
        return lane_ < kConsumers ? kWarpgroupThreads : kWarpThreads;
    }
    __device__ __forceinline__ bool recording() const { return thread_anew() % role_threads() == 0; }

    // Places in shared memory are found anew: beside the sums there are no registers for them either.
    __device__ __forceinline__ SpanLane& state() const { return reinterpret_cast<SpanLane*>(lanes_)[lane_]; }
    __device__ __forceinline__ u32* words() const {
        return reinterpret_cast<u32*>(lanes_ + kLanes * sizeof(SpanLane)) + lane_ % kConsumers * kWarpThreads;
    }
    __device__ __forceinline__ SpanRecord* records() const {
        return reinterpret_cast<SpanRecord*>(lanes_ + kLanesBytes) + lane_ * arguments_.span_capacity;
    }

    const MoeArguments& arguments_;
    char* lanes_;
    u32 lane_;
};

}  // namespace xstage::megamoe
