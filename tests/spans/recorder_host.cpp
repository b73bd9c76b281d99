// xstage/span.cuh on a CPU: a clock of two cycles a ns that a test sets.
#define __device__
#define __host__
#define __forceinline__ inline
#define XSTAGE_CLOCK_CUH

namespace xstage {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

u64 now_ns = 0;

inline u64 sm_clock() { return 2 * now_ns; }
inline u32 sm_id() { return 7; }

struct ClockPair {
    u64 timer_ns;
    u64 cycles;
};
inline ClockPair read_clock_pair() { return {now_ns, sm_clock()}; }

}  // namespace xstage

#include "include/xstage/span.cuh"

using namespace xstage;

struct Span {
    u32 lane, name, index;
    u64 begin_ns, end_ns;
};

// One lane after the other: opened at 1,000 ns, its spans as given, closed at 9,000 ns.
extern "C" void record(void* memory, u32 lanes, u32 capacity, const Span* spans, u32 count, bool staged) {
    static SpanRecord staging[8];
    for (u32 lane = 0; lane < lanes; lane += 2) {  // every other lane is never opened
        now_ns = 1000;
        Spans<> recorder({memory, lanes, capacity}, lane, staged ? staging : nullptr, 8);
        for (const Span* span = spans; span < spans + count; ++span) {
            if (span->lane == lane) {
                now_ns = span->begin_ns;
                const u64 begin = recorder.begin();
                now_ns = span->end_ns;
                recorder.end(span->name, span->index, begin);
            }
        }
        now_ns = 9000;
        recorder.close();
    }
}

extern "C" u64 bytes(u32 lanes, u32 capacity) { return span_buffer_bytes(lanes, capacity); }
