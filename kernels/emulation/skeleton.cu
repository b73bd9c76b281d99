// The skeleton of a fused kernel: its persistent CTAs, roles, staging slots, tile order, dependencies, destinations
// and stores, with each mainloop replaced by a spin of the same length.
//
// TILE_SOURCE: 0 = MegaMoE, by the fused kernel's scheduler; 1 = a listed order (FA-A2A).
// STORE_FLAVOUR: 0 = 16-byte register stores of 256 threads; 1 = bulk copies from shared memory by one thread.
//
// A tile's way: the loader role finds it and waits for its counter; the mainloop role waits for a slot, spins and
// arrives at full[slot]; the issue role, or the signal role for a tile that raises a counter when stored, gives it
// away and arrives at free[slot].
//
// The traps of device-side timing are designed out as in calibration: moments are staged in shared memory, the lanes
// start at a common deadline of the global timer, spins count the SM's clock, every table is in shared memory before
// the start, and no fence is inside a span.
#include "common/pattern.cuh"
#include "common/mbarrier.cuh"
#include "common/span.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/arguments.cuh"
#include "emulation/cta.cuh"
#include "emulation/loader.cuh"
#include "emulation/mainloop.cuh"
#include "emulation/primitives.cuh"
#include "emulation/queue.cuh"
#include "emulation/stores.cuh"
#include "emulation/storing.cuh"
#include "emulation/tile_sources.cuh"
#include "emulation/waits.cuh"
#include "megamoe/scheduler.cuh"

#if !defined(STORE_FLAVOUR) || !defined(TILE_SOURCE)
#error "STORE_FLAVOUR is 0 (st.v4) or 1 (tma), TILE_SOURCE 0 (MegaMoE) or 1 (listed)"
#endif

namespace xstage::emulation {

// Warps of the issue role, then one each of the mainloop, the signal and the loader role.
constexpr u32 kIssueThreads = STORE_FLAVOUR == 0 ? kVectorThreads : 32;
constexpr u32 kMainloopThread = kIssueThreads;
constexpr u32 kSignalThread = kIssueThreads + 32;
constexpr u32 kLoaderThread = kIssueThreads + 64;
constexpr u32 kThreads = kIssueThreads + 96;

// Filling the slots and tables takes a few us a CTA; all must be done by the common start.
constexpr u64 kStartDelayNs = 100'000;

// Registers the CTA and tells it the start that all lanes share; 0 when they did not all arrive.
__device__ u64 enrol(const SkeletonArguments& arguments, u32 lane) {
    const Arrival arrival = arrive_at_start(&arguments.control->start, arguments.lane_count, kStartDelayNs);
    if (arrival.start_ns == 0) {
        Waiter{arguments.control, 0, lane, Role::loader}.raise(Wait::arrival, 0, 0, arguments.lane_count, arrival.seen);
    }
    return arrival.start_ns;
}

template <typename Row>
__device__ void copy_table(Row* shared, const Row* global, u32 rows) {
    const u32* from = reinterpret_cast<const u32*>(global);
    u32* to = reinterpret_cast<u32*>(shared);
    for (u32 word = threadIdx.x; word < rows * (sizeof(Row) / 4); word += kThreads) {
        to[word] = from[word];
    }
}

// Puts the launch's pattern into every slot; a tile only changes the first word of each piece.
__device__ void fill_slots(const Cta& cta) {
    const u32 vectors = cta.arguments.slots * (cta.arguments.slot_bytes / kVectorBytes);
    const u32 vectors_of_slot = cta.arguments.slot_bytes / kVectorBytes;
    for (u32 vector = threadIdx.x; vector < vectors; vector += kThreads) {
        const u32 in_piece = vector % vectors_of_slot % (kPieceBytes / kVectorBytes);
        reinterpret_cast<uint4*>(cta.slots)[vector] = pattern_vector(cta.arguments.nonce, in_piece, 0);
    }
}

// The scheduler's tables, in shared memory: polling and stores must not hold up the finding of a tile.
__device__ megamoe::SchedulerParameters scheduler_tables(const SkeletonArguments& arguments, u32 lane, char* shared) {
    megamoe::SchedulerParameters parameters = arguments.scheduler;
    u32* first_row = reinterpret_cast<u32*>(shared + arguments.shared.first_row);
    u32* tokens = reinterpret_cast<u32*>(shared + arguments.shared.tokens);
    copy_table(first_row, parameters.first_row, parameters.experts + 1);
    copy_table(tokens, parameters.tokens_per_expert, parameters.experts);
    parameters.first_row = first_row;
    parameters.tokens_per_expert = tokens;
    megamoe::find_positions(parameters, MegaMoeTiles::instance_of(parameters, lane),
                            reinterpret_cast<u16*>(shared + arguments.shared.positions), threadIdx.x, kThreads);
    return parameters;
}

__device__ Cta make_cta(const SkeletonArguments& arguments, u32 lane, char* shared) {
    const SharedOffsets& at = arguments.shared;
    const u32 first_tile = arguments.first_tile[lane];
    const LaneTiles tiles = {reinterpret_cast<TilePlan*>(shared + at.plans),
                             reinterpret_cast<TileLinks*>(shared + at.listed),
                             reinterpret_cast<StorePlan*>(shared + at.stores),
                             arguments.first_tile[lane + 1] - first_tile};
    Mbarrier* barriers = reinterpret_cast<Mbarrier*>(shared + at.barriers);
    copy_table(reinterpret_cast<TilePlan*>(shared + at.plans), arguments.plans + first_tile, tiles.count);
#if TILE_SOURCE == 1
    copy_table(reinterpret_cast<TileLinks*>(shared + at.listed), arguments.listed + first_tile, tiles.count);
#endif
    copy_table(reinterpret_cast<StorePlan*>(shared + at.stores), arguments.stores, arguments.store_plans);
    return {arguments,
            lane,
            0,
            0,
            shared,
            barriers,
            barriers + arguments.slots,
            barriers + 2 * arguments.slots,
            reinterpret_cast<QueueEntry*>(shared + at.queue),
            reinterpret_cast<TileLinks*>(shared + at.links),
            reinterpret_cast<u32*>(shared + at.words),
            reinterpret_cast<TileMoments*>(shared + at.moments),
            tiles};
}

__device__ void init_queue(const Cta& cta) {
    for (u32 index = 0; index < cta.arguments.queue_tiles; ++index) {
        cta.queue[index] = {};
    }
}

__device__ void init_barriers(const Cta& cta) {
    const u32 storing_roles = cta.arguments.some_signal != 0 ? 2 : 1;
    for (u32 slot = 0; slot < cta.arguments.slots; ++slot) {
        cta.full[slot].init(1);
        cta.free[slot].init(storing_roles);
    }
    for (u32 index = 0; index < cta.arguments.queue_tiles; ++index) {
        cta.stored[index].init(1);
    }
    fence_barrier_init();
}

__device__ u32 kept_tiles(const Cta& cta) {
    u32 kept = 0;
    for (u32 place = 0; place < cta.tiles.count; ++place) {
        kept += is_kept(place, cta.arguments.keep_threshold) ? 1 : 0;
    }
    return kept;
}

// Runs each role on its threads and leaves the totals in `totals`.
template <typename Tiles>
__device__ void run_roles(const Cta& cta, Tiles& tiles, LaneTotals& totals) {
    if (threadIdx.x < kIssueThreads) {
#if STORE_FLAVOUR == 0
        VectorIssueRole issue(cta);
        issue.run();
        if (threadIdx.x == 0) {
            totals.issue = issue.totals();
        }
#else
        if (threadIdx.x == 0) {
            BulkIssueRole issue(cta);
            issue.run();
            totals.issue = issue.totals();
        }
#endif
    } else if (threadIdx.x == kMainloopThread) {
        totals.mainloop = MainloopRole(cta).run();
    } else if (threadIdx.x == kLoaderThread) {
        totals.order_check = LoaderRole<Tiles>(cta, tiles).run();
    } else if (threadIdx.x == kSignalThread && cta.arguments.some_signal != 0) {
        SignalRole signal(cta);
        signal.run();
        totals.signal = signal.totals();
    }
}

}  // namespace xstage::emulation

using namespace xstage;
using namespace xstage::emulation;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    skeleton(const __grid_constant__ SkeletonArguments arguments) {
    char* shared = dynamic_shared_memory();
    __shared__ LaneTotals totals;
    __shared__ LaneRecord record;
    __shared__ u64 start_ns;
    const u32 sm = sm_id();
    const u32 lane = sm < kMaxSms ? arguments.lane_of_sm[sm] : kNoLane;
    if (lane == kNoLane) {
        return;
    }
    Cta cta = make_cta(arguments, lane, shared);
    fill_slots(cta);
#if TILE_SOURCE == 0
    const megamoe::SchedulerParameters parameters = scheduler_tables(arguments, lane, shared);
#endif
    if (threadIdx.x == 0) {
        totals = {};
        init_queue(cta);
        init_barriers(cta);
        start_ns = enrol(arguments, lane);
        const ClockPair pair = read_clock_pair();
        record.timer_begin_ns = pair.timer_ns;
        record.cycle_begin = pair.cycles;
    }
    fence_shared_for_bulk();
    __syncthreads();
    cta.start_ns = start_ns;
    cta.origin_cycles = record.cycle_begin;
    if (start_ns == 0) {
        return;
    }
#if TILE_SOURCE == 0
    const u16* positions = reinterpret_cast<const u16*>(shared + arguments.shared.positions);
    MegaMoeTiles tiles(arguments, parameters, lane, positions);
#else
    ListedTiles tiles(cta.tiles);
#endif
    run_roles(cta, tiles, totals);
    __syncthreads();
    const u32 kept = kept_tiles(cta);
    if (threadIdx.x == 0) {
        const ClockPair end = read_clock_pair();
        record.timer_end_ns = end.timer_ns;
        record.cycle_end = end.cycles;
        record.recorded = kept;
        record.dropped = 0;
        record.issued = totals.issue.tiles + totals.signal.tiles;
        record.lane = static_cast<u16>(lane);
        record.sm_id = static_cast<u16>(sm);
        arguments.lanes[lane] = record;
        arguments.totals[lane] = totals;
    }
    const u32* staged = reinterpret_cast<const u32*>(cta.moments);
    u32* moments = reinterpret_cast<u32*>(arguments.moments + static_cast<u64>(lane) * arguments.most_kept);
    for (u32 word = threadIdx.x; word < kept * (sizeof(TileMoments) / 4); word += kThreads) {
        moments[word] = staged[word];
    }
}
