// Records of one lane: begin/end pairs of its clock, in memory of its own, and the lane's two clock pairs.
//
// What includes this names the clocks first: clock.cuh, or a test's stand-in for it.
#pragma once

namespace xstage {

struct SpanRecord {
    u32 begin_cycles;  // after the lane's cycle_begin: a lane may run for 2^32 cycles (2.1 s at 2 GHz)
    u32 duration_cycles;
    u32 tag;  // what the span is, as who records it says
};
static_assert(sizeof(SpanRecord) == 12, "as the host reads it");

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
static_assert(sizeof(LaneRecord) == 48, "as the host reads it");

// A lane is recorded by one thread. A lane that runs out of memory counts what it drops; it never overwrites.
class LaneRecorder {
public:
    // `records`: room for `capacity` records, this lane's alone. `lane_tag`: bits of every tag of the lane.
    __device__ LaneRecorder(SpanRecord* records, u32 capacity, u32 lane_tag = 0)
        : records_(records), capacity_(capacity), lane_tag_(lane_tag) {}

    // Ties the lane's clock to the common timer; the spans that follow count from here.
    __device__ void open() { begin_ = read_clock_pair(); }

    __device__ __forceinline__ u64 begin() const { return sm_clock(); }

    // Ends a span begun at `begin_cycles`; returns the end, so that a gap can be counted from it.
    __device__ __forceinline__ u64 end_tagged(u32 tag, u64 begin_cycles) {
        const u64 end_cycles = sm_clock();
        const u64 offset = begin_cycles - begin_.cycles;
        if (recorded_ < capacity_ && (offset >> 32) == 0) {
            records_[recorded_] = {static_cast<u32>(offset), static_cast<u32>(end_cycles - begin_cycles),
                                   lane_tag_ | tag};
            ++recorded_;
        } else {
            ++dropped_;
        }
        return end_cycles;
    }

    // Spans ended so far, kept or not.
    __device__ u32 ended() const { return recorded_ + dropped_; }

    // Reads the closing clock pair and writes the lane's row; returns the number of records kept.
    __device__ u32 close(LaneRecord* row, u32 lane, u32 issued) {
        const ClockPair end = read_clock_pair();
        *row = {begin_.timer_ns, begin_.cycles, end.timer_ns, end.cycles, recorded_,
                dropped_,        issued,        static_cast<u16>(lane), static_cast<u16>(sm_id())};
        return recorded_;
    }

private:
    SpanRecord* records_;
    u32 capacity_;
    u32 lane_tag_;
    u32 recorded_ = 0;
    u32 dropped_ = 0;
    ClockPair begin_{};
};

// Copies a lane's records out, by `threads` threads that have all passed a barrier after `close`.
__device__ __forceinline__ void flush_spans(SpanRecord* destination, const SpanRecord* staging, u32 records,
                                            u32 thread, u32 threads) {
    const u32* from = reinterpret_cast<const u32*>(staging);
    u32* to = reinterpret_cast<u32*>(destination);
    for (u32 word = thread; word < records * (sizeof(SpanRecord) / 4); word += threads) {
        to[word] = from[word];
    }
}

}  // namespace xstage
