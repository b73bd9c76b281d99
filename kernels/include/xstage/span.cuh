// Spans of a kernel of your own: what each of its lanes does when, by name, in a buffer that
// `xstage-tune import` reads. Needs nothing but this folder: `-I "$(xstage-tune import --header-dir)"`.
//
//     xstage::Spans<> spans(buffer, lane);        // one thread a lane, e.g. the first one of a role
//     u64 begin = spans.begin();
//     ...                                         // the work of a tile
//     spans.end(kMainloop, tile, begin);          // kMainloop: a number below 256 of your own
//     spans.close();                              // after the lane's last span
//
// A lane is a CTA, or one role of it: lane = cta * roles + role. Names are given to the numbers when the buffer
// is saved. A span costs two reads of the SM's clock, a comparison and a 12-byte store. Compile with
// -DXSTAGE_SPANS=0, or name Spans<false>, and nothing of it is left; with `memory` null nothing is recorded.
#pragma once

#include "clock.cuh"
#include "recorder.cuh"

#ifndef XSTAGE_SPANS
#define XSTAGE_SPANS 1
#endif

namespace xstage {

// First in the buffer; then a LaneRecord for each lane, then `capacity` SpanRecords for each lane.
struct SpanBufferHead {
    u64 magic;
    u32 lanes;
    u32 capacity;
};
static_assert(sizeof(SpanBufferHead) == 16, "as the host reads it");

constexpr u64 kSpanBufferMagic = 0x31534e4150535358;  // "XSSPANS1"

// What a kernel takes: `memory` has span_buffer_bytes(lanes, capacity) bytes, all 0 before the launch.
struct SpanBuffer {
    void* memory;
    u32 lanes;
    u32 capacity;
};

#ifdef __CUDACC__
__host__ __device__
#endif
constexpr u64 span_buffer_bytes(u32 lanes, u32 capacity) {
    return sizeof(SpanBufferHead) + lanes * (sizeof(LaneRecord) + u64{capacity} * sizeof(SpanRecord));
}

template <bool kOn = (XSTAGE_SPANS != 0)>
class Spans {
public:
    // Records go to the buffer at once, or with `staging`, room for `staged` records of this lane in shared memory,
    // when the lane is closed. Take that where the kernel stores to another GPU: a record on its way to memory
    // queues behind those stores, and moves a stall out of the span that had it.
    __device__ Spans(const SpanBuffer& buffer, u32 lane, SpanRecord* staging = nullptr, u32 staged = 0)
        : buffer_(buffer),
          lane_(lane),
          on_(buffer.memory != nullptr && lane < buffer.lanes),
          staging_(staging),
          recorder_(staging != nullptr ? staging : records(),
                    !on_ ? 0 : staging != nullptr && staged < buffer.capacity ? staged : buffer.capacity) {
        if (on_) {
            recorder_.open();
        }
    }

    __device__ __forceinline__ u64 begin() const { return recorder_.begin(); }

    // Ends a span begun at `begin_cycles`; returns its end, at which a next one may begin. `index`: of the tile,
    // below 2^24.
    __device__ __forceinline__ u64 end(u32 name, u32 index, u64 begin_cycles) {
        return recorder_.end_tagged((name << 24) | (index & 0xffffffu), begin_cycles);
    }

    // Writes the lane's clocks, and what was staged.
    __device__ void close() {
        if (on_) {
            const u32 kept = recorder_.close(rows() + lane_, lane_, recorder_.ended());
            if (staging_ != nullptr) {
                flush_spans(records(), staging_, kept, 0, 1);
            }
            *static_cast<SpanBufferHead*>(buffer_.memory) = {kSpanBufferMagic, buffer_.lanes, buffer_.capacity};
        }
    }

private:
    __device__ LaneRecord* rows() const {
        return reinterpret_cast<LaneRecord*>(static_cast<SpanBufferHead*>(buffer_.memory) + 1);
    }
    __device__ SpanRecord* records() const {
        return reinterpret_cast<SpanRecord*>(rows() + buffer_.lanes) + u64{lane_} * buffer_.capacity;
    }

    SpanBuffer buffer_;
    u32 lane_;
    bool on_;
    SpanRecord* staging_;
    LaneRecorder recorder_;
};

// Switched off: no state, no instruction.
template <>
class Spans<false> {
public:
    __device__ Spans(const SpanBuffer&, u32, SpanRecord* = nullptr, u32 = 0) {}
    __device__ __forceinline__ u64 begin() const { return 0; }
    __device__ __forceinline__ u64 end(u32, u32, u64) { return 0; }
    __device__ void close() {}
};

}  // namespace xstage
