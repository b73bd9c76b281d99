// Span recorder: begin/end pairs of one lane, staged in shared memory and flushed after the timed region.
//
// A record that went to global memory at once would queue behind the very stores that it times and move their
// stall out of the span. So `end` writes 12 bytes of shared memory, and `flush_spans` runs after the last span.
#pragma once

#include "common/timer.cuh"
#include "common/types.cuh"
#include "include/xstage/recorder.cuh"

namespace xstage {

// What a span covers; the numbers are those of xstage_tune.base.spans.SpanKind.
enum class SpanKind : u32 { issue = 1 };

// Tags its records by kind (4 bits), role (4 bits) and index (24 bits).
class SpanRecorder : public LaneRecorder {
public:
    // `staging`: shared memory for `capacity` records, this lane's alone.
    __device__ SpanRecorder(SpanRecord* staging, u32 capacity, u32 role = 0)
        : LaneRecorder(staging, capacity, role << 24) {}

    // Ends a span begun at `begin_cycles`; returns the end, so that a gap can be counted from it.
    __device__ __forceinline__ u64 end(SpanKind kind, u32 index, u64 begin_cycles) {
        return end_tagged((static_cast<u32>(kind) << 28) | (index & 0xffffffu), begin_cycles);
    }
};

}  // namespace xstage
