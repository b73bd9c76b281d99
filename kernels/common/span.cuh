// Span recorder: begin/end pairs of one lane, staged in shared memory and flushed after the timed region.
//
// A record that went to global memory at once would queue behind the very stores that it times and move their
// stall out of the span. So `end` writes 12 bytes of shared memory, and `flush` runs after the last span.
// A lane is recorded by one thread. A lane that runs out of staging counts what it drops; it never overwrites.
#pragma once

#include "common/timer.cuh"
#include "common/types.cuh"

namespace xstage {

// What a span covers; the numbers are those of xstage_tune.base.spans.SpanKind.
enum class SpanKind : u32 { issue = 1 };

struct SpanRecord {
    u32 begin_cycles;  // after the lane's cycle_begin: a lane may run for 2^32 cycles (2.1 s at 2 GHz)
    u32 duration_cycles;
    u32 tag;  // kind (4 bits) | role (4 bits) | index (24 bits)
};
static_assert(sizeof(SpanRecord) == 12);

// One a lane, in global memory; the layout of xstage_tune.base.spans.LANE_DTYPE.
struct LaneRecord {
    u64 timer_begin_ns;
    u64 cycle_begin;
    u64 timer_end_ns;
    u64 cycle_end;
    u32 recorded;
    u32 dropped;
    u32 issued;
    u16 lane;
    u16 sm_id;
};
static_assert(sizeof(LaneRecord) == 48);

class SpanRecorder {
public:
    // `staging`: shared memory for `capacity` records, this lane's alone.
    __device__ SpanRecorder(SpanRecord* staging, u32 capacity, u32 role = 0)
        : staging_(staging), capacity_(capacity), role_tag_(role << 24) {}

    // Ties the lane's clock to the common timer; the spans that follow count from here.
    __device__ void open() { begin_ = read_clock_pair(); }

    __device__ __forceinline__ u64 begin() const { return sm_clock(); }

    // Ends a span begun at `begin_cycles`; returns the end, so that a gap can be counted from it.
    __device__ __forceinline__ u64 end(SpanKind kind, u32 index, u64 begin_cycles) {
        const u64 end_cycles = sm_clock();
        const u64 offset = begin_cycles - begin_.cycles;
        if (recorded_ < capacity_ && (offset >> 32) == 0) {
            staging_[recorded_] = {static_cast<u32>(offset), static_cast<u32>(end_cycles - begin_cycles),
                                   (static_cast<u32>(kind) << 28) | role_tag_ | (index & 0xffffffu)};
            ++recorded_;
        } else {
            ++dropped_;
        }
        return end_cycles;
    }

    // Reads the closing clock pair and writes the lane's row; returns the number of records staged.
    __device__ u32 close(LaneRecord* row, u32 lane, u32 issued) {
        const ClockPair end = read_clock_pair();
        *row = {begin_.timer_ns, begin_.cycles, end.timer_ns, end.cycles, recorded_,
                dropped_,        issued,        static_cast<u16>(lane), static_cast<u16>(sm_id())};
        return recorded_;
    }

private:
    SpanRecord* staging_;
    u32 capacity_;
    u32 role_tag_;
    u32 recorded_ = 0;
    u32 dropped_ = 0;
    ClockPair begin_{};
};

// Copies a lane's staged records out, by `threads` threads that have all passed a barrier after `close`.
__device__ __forceinline__ void flush_spans(SpanRecord* destination, const SpanRecord* staging, u32 records,
                                            u32 thread, u32 threads) {
    const u32* from = reinterpret_cast<const u32*>(staging);
    u32* to = reinterpret_cast<u32*>(destination);
    for (u32 word = thread; word < records * (sizeof(SpanRecord) / 4); word += threads) {
        to[word] = from[word];
    }
}

}  // namespace xstage
