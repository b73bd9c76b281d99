// Microbenchmarks of device-initiated stores: K producers (CTAs, one an SM) store bursts of B bytes.
//
// Two entries, two flavours (STORE_FLAVOUR: 0 = 16-byte register stores of all threads, 1 = bulk copies from
// shared memory by one thread):
//   periodic_bursts  burst, spin for a gap, repeat until a common deadline
//   isolated_bursts  one burst at each of a row of common deadlines, the path idle in between
// The destination is a ring per producer, together much larger than L2, so that no store can be merged with
// one of an earlier lap. Timed code touches no global memory but the destination.
#include "common/pattern.cuh"
#include "common/span.cuh"
#include "common/start.cuh"
#include "common/store.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"

#ifndef STORE_FLAVOUR
#error "STORE_FLAVOUR is 0 (st.v4) or 1 (tma)"
#endif

namespace xstage {

constexpr u32 kThreads = 256;
constexpr u64 kStartDelayNs = 20'000;
constexpr u32 kMaxSms = 256;

// A wait that ran out, for the host to report.
struct Fault {
    u32 raised;
    u32 producer;
    u32 expected;
    u32 seen;
};

// Zeroed by the host before each launch.
struct Control {
    Start start;  // counts the producers
    Fault fault;
};
static_assert(sizeof(Control) == 32);

struct BurstArguments {
    char* destination;      // producers * ring_bytes
    u64 ring_bytes;         // of one producer
    u64 spacing_ns;         // isolated: from start to start
    u64 window_ns;          // periodic: from the common start to the deadline
    Control* control;
    LaneRecord* lanes;   // [producers]
    SpanRecord* spans;  // [producers, span_capacity]
    u32 burst_bytes;
    u32 bursts;  // isolated: bursts to issue
    u32 nonce;
    u32 span_capacity;
    u32 gap_cycles;  // periodic: spin after a burst, on the SM's clock
    u32 producers;
    u32 first_slot;  // of the ring: launches start at different places of the destination
    u32 padding;
    u64 idle_sms[kMaxSms / 64];  // bit per SM id: its CTA is no producer
};
static_assert(sizeof(BurstArguments) == 120);

__device__ bool on_idle_sm(const BurstArguments& arguments) {
    const u32 sm = sm_id();
    return sm >= kMaxSms || (arguments.idle_sms[sm / 64] >> (sm % 64) & 1) != 0;
}

// Numbers the producers and tells them one start.
__device__ Arrival enrol(const BurstArguments& arguments) {
    Control* control = arguments.control;
    const Arrival arrival = arrive_at_start(&control->start, arguments.producers, kStartDelayNs);
    if (arrival.start_ns == 0) {
        control->fault = {1, arrival.place, arguments.producers, arrival.seen};
    }
    return arrival;
}

// One producer's side of a burst: `prepare` outside the span, `issue` inside it.
class Producer {
public:
    __device__ Producer(const BurstArguments& arguments, u32 lane, char* piece)
        : ring_(arguments.destination + lane * arguments.ring_bytes),
          slots_(static_cast<u32>(arguments.ring_bytes / arguments.burst_bytes)),
          first_slot_(arguments.first_slot),
          burst_bytes_(arguments.burst_bytes),
          piece_(piece) {
        value_ = pattern_vector(arguments.nonce, threadIdx.x, 0);
#if STORE_FLAVOUR == 1
        reinterpret_cast<uint4*>(piece_)[threadIdx.x] = value_;
        fence_shared_for_bulk();
#endif
    }

    // Finds the burst's place and puts its number into the piece. All threads; a barrier must follow.
    __device__ __forceinline__ void prepare(u32 burst) {
        slot_ = ring_ + static_cast<u64>((burst + first_slot_) % slots_) * burst_bytes_;
        // The place is known here: else the compiler computes it where it is used, and the remainder's 30
        // instructions are timed as part of the burst.
        asm volatile("" : "+l"(slot_)::"memory");
        if (threadIdx.x == 0) {
            value_.x = burst;
#if STORE_FLAVOUR == 1
            // The copies of the burst before have been read (issue waits for that).
            *reinterpret_cast<u32*>(piece_) = burst;
            fence_shared_for_bulk();
#endif
        }
    }

    // Stores the burst; all threads return when the SM has given all of it away: the LSU has passed on the last
    // register store, or the copies have read their sources. No fence: it would wait for arrival.
    __device__ __forceinline__ void issue() const {
#if STORE_FLAVOUR == 0
        static_assert(kThreads * kVectorBytes == kPieceBytes, "each thread stores the same vector of every piece");
        for (u32 offset = threadIdx.x * kVectorBytes; offset < burst_bytes_; offset += kPieceBytes) {
            store_v4(slot_ + offset, value_);
        }
        // A barrier alone is passed while stores still queue in the load/store unit; one that needs the word to
        // have come back is not. No thread's word is ~0, so the vote is always 0.
        u32* word = reinterpret_cast<u32*>(piece_) + threadIdx.x;
        __syncthreads_or(round_trip_behind_stores(word, threadIdx.x) == ~0u);
#else
        if (threadIdx.x == 0) {
            for (u32 offset = 0; offset < burst_bytes_; offset += kPieceBytes) {
                bulk_store(slot_ + offset, piece_, min(kPieceBytes, burst_bytes_ - offset));
            }
            bulk_commit();
            bulk_wait_sources_read();
        }
        __syncthreads();
#endif
    }

    // Waits for arrival, after the timed region: shared memory must outlive the copies.
    __device__ void finish() const {
#if STORE_FLAVOUR == 1
        if (threadIdx.x == 0) {
            bulk_wait_complete();
        }
#endif
    }

private:
    char* ring_;
    u32 slots_;
    u32 first_slot_;
    u32 burst_bytes_;
    char* piece_;
    char* slot_ = nullptr;
    uint4 value_;
};

// Shared memory: one piece, then the staged spans. Its size leaves room for one CTA an SM and no second.
struct SharedLayout {
    char* piece;
    SpanRecord* spans;
};

__device__ SharedLayout shared_layout() {
    extern __shared__ __align__(128) char shared[];
    return {shared, reinterpret_cast<SpanRecord*>(shared + kPieceBytes)};
}

// A producer's life around its bursts: enrol, `bursts(producer, recorder, start_ns)` which returns how many it issued,
// close the lane, and flush the records once nothing is timed any more.
template <typename Bursts>
__device__ void run_producer(const BurstArguments& arguments, Bursts bursts) {
    if (on_idle_sm(arguments)) {
        return;
    }
    const SharedLayout shared = shared_layout();
    __shared__ Arrival arrival;
    __shared__ u32 records;
    SpanRecorder recorder(shared.spans, arguments.span_capacity);
    if (threadIdx.x == 0) {
        arrival = enrol(arguments);
        recorder.open();
    }
    __syncthreads();
    const u32 lane = arrival.place;
    const u64 start_ns = arrival.start_ns;
    if (start_ns == 0) {
        return;
    }
    Producer producer(arguments, lane, shared.piece);
    const u32 issued = bursts(producer, recorder, start_ns);
    if (threadIdx.x == 0) {
        records = recorder.close(&arguments.lanes[lane], lane, issued);
    }
    producer.finish();
    __syncthreads();
    flush_spans(arguments.spans + static_cast<u64>(lane) * arguments.span_capacity, shared.spans, records,
                threadIdx.x, kThreads);
}

}  // namespace xstage

using namespace xstage;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    periodic_bursts(const __grid_constant__ BurstArguments arguments) {
    run_producer(arguments, [&](Producer& producer, SpanRecorder& recorder, u64 start_ns) {
        __shared__ bool active;
        // A common deadline and not a number of bursts: service is uneven, and a producer that finished early
        // would leave the others a faster path.
        const u64 stop_ns = start_ns + arguments.window_ns;
        if (threadIdx.x == 0) {
            spin_until_ns(start_ns);
        }
        for (u32 burst = 0;; ++burst) {
            producer.prepare(burst);
            if (threadIdx.x == 0) {
                active = global_timer_ns() < stop_ns;
            }
            __syncthreads();
            if (!active) {
                return burst;
            }
            const u64 begin_cycles = recorder.begin();
            producer.issue();
            if (threadIdx.x == 0) {
                const u64 end_cycles = recorder.end(SpanKind::issue, burst, begin_cycles);
                spin_until_cycle(end_cycles + arguments.gap_cycles);
            }
        }
    });
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    isolated_bursts(const __grid_constant__ BurstArguments arguments) {
    run_producer(arguments, [&](Producer& producer, SpanRecorder& recorder, u64 start_ns) {
        for (u32 burst = 0; burst < arguments.bursts; ++burst) {
            producer.prepare(burst);
            __syncthreads();
            if (threadIdx.x == 0) {
                spin_until_ns(start_ns + burst * arguments.spacing_ns);
            }
            __syncthreads();
            const u64 begin_cycles = recorder.begin();
            producer.issue();
            if (threadIdx.x == 0) {
                recorder.end(SpanKind::issue, burst, begin_cycles);
            }
        }
        return arguments.bursts;
    });
}

// Smallest step of the global timer, in ns: the resolution of every common deadline.
extern "C" __global__ void timer_tick(u64* tick_ns) {
    u64 smallest = ~0ull;
    u64 previous = global_timer_ns();
    for (u32 edges = 0; edges < 256;) {
        const u64 now = global_timer_ns();
        if (now != previous) {
            smallest = edges == 0 ? smallest : min(smallest, now - previous);  // the first step is a partial one
            previous = now;
            ++edges;
        }
    }
    *tick_ns = smallest;
}
