// What the host tells a skeleton, and what it gets back. Mirrored in xstage_tune.cuda.skeletons_layout.
#pragma once

#include "common/span.cuh"
#include "common/start.cuh"
#include "common/types.cuh"
#include "megamoe/scheduler.cuh"

namespace xstage::emulation {

constexpr u32 kMaxSms = 256;
constexpr u32 kNoCounter = ~0u;
constexpr u32 kNoLane = 0xffff;

// The numbers are those of the host's messages. Roles that wait for others give up after those, so that the cause
// is reported first.
enum class Role : u32 { loader = 0, mainloop = 1, issue = 2, signal = 3 };
enum class Wait : u32 { arrival = 1, counter = 2, next_tile = 3, free_slot = 4, finished_tile = 5, turn = 6 };

// A wait that ran out, for the host to report.
struct Fault {
    u32 raised;
    u32 lane;
    u32 role;
    u32 wait;
    u32 tile;
    u32 subject;  // counter or slot
    u32 expected;
    u32 seen;
};

// Zeroed by the host before each launch.
struct Control {
    Start start;  // counts the lanes
    Fault fault;
};
static_assert(sizeof(Control) == 48);

// A tile by its place in its lane's order.
struct TilePlan {
    u32 mainloop_cycles;
    u32 slot_offset_cycles;  // how far into its mainloop it gets without a slot
    u16 store;               // row of the table of stores
    u16 expected;            // signals that complete the counter it waits on
};
static_assert(sizeof(TilePlan) == 12);

// When a tile raises its counter: never, when it is stored, when its mainloop ends.
enum class Raises : u32 { nothing = 0, when_stored = 1, at_end = 2 };

// Counters of a tile.
struct TileLinks {
    u32 waits_on;
    u32 signals;
};
static_assert(sizeof(TileLinks) == 8);

struct StorePlan {
    u32 staging_cycles;
    u32 local_bytes;  // multiples of 16, as remote_bytes
    u32 remote_bytes;
    u32 raises;  // when its counter is raised
};
static_assert(sizeof(StorePlan) == 16);

// What happened to a tile, in cycles after the lane's cycle_begin: 32 bytes for all of its spans, staged in shared
// memory (a record stored to global memory would queue behind the stores that it times). Every role finds a tile's
// row by itself, so nothing is handed on for it.
struct TileMoments {
    u32 ready;     // the mainloop role turned to the tile
    u32 begin;     // its mainloop could begin: what it depends on was there
    u32 taken;     // it had a slot
    u32 end;       // of its mainloop
    u32 issue;     // the storing role turned to it
    u32 accepted;  // its last store was accepted
    u32 freed;     // its slot was free again
    u32 padding;
};
static_assert(sizeof(TileMoments) == 32);

struct MainloopTotals {
    u64 mainloop_cycles;
    u64 stall_cycles;
    u64 dependency_cycles;
};
static_assert(sizeof(MainloopTotals) == 24);

struct IssueTotals {
    u64 issue_cycles;
    u64 remote_issue_cycles;
    u64 completion_cycles;
    u64 signal_cycles;
    u64 finish_cycle;  // on the SM's clock; 0 if it stored nothing
    u32 tiles;
    u32 remote_tiles;
};
static_assert(sizeof(IssueTotals) == 48);

struct LaneTotals {
    MainloopTotals mainloop;
    u64 order_check;  // the loader role's, of the tiles found, for the host to compare
    IssueTotals issue;
    IssueTotals signal;  // of the tiles that the signal role stored
};
static_assert(sizeof(LaneTotals) == 128);

// Where each part of the dynamic shared memory begins; the slots are at 0.
struct SharedOffsets {
    u32 barriers;  // full[slots], free[slots], stored[queue_tiles]
    u32 queue;     // [queue_tiles] of QueueEntry
    u32 links;     // [queue_tiles] of TileLinks: counters of the tiles found
    u32 words;     // one a thread of the issue role
    u32 stores;    // table of StorePlan
    u32 plans;     // [tiles]
    u32 listed;    // [tiles] of TileLinks; listed orders only
    u32 first_row;
    u32 tokens;
    u32 positions;
    u32 moments;  // [kept tiles]
};

struct SkeletonArguments {
    char* remote;  // lanes * remote_ring_bytes
    char* local;
    u64 remote_ring_bytes;
    u64 local_ring_bytes;
    u64 duration_ns;  // from the common start until waits give up
    Control* control;
    LaneRecord* lanes;
    LaneTotals* totals;
    TileMoments* moments;   // [lanes, most_kept]
    u32* counters;
    const u32* first_tile;  // [lanes + 1]
    const TilePlan* plans;
    const TileLinks* listed;
    const StorePlan* stores;
    megamoe::SchedulerParameters scheduler;
    SharedOffsets shared;
    u32 lane_count;
    u32 store_plans;
    u32 slots;
    u32 slot_bytes;
    u32 queue_tiles;        // room for tiles between their being found and their being stored
    u32 remote_slot_bytes;  // of the rings
    u32 local_slot_bytes;
    u32 first_remote_slot;
    u32 first_local_slot;
    u32 most_kept;
    u32 keep_threshold;
    u32 nonce;
    u32 dependencies;  // 0: Linear-2 waits for nothing
    u32 some_signal;   // 1: some tiles raise counters when stored
    u32 coupled;       // 1: a slot is freed when its tile's remote stores are visible to their owner
    u16 lane_of_sm[kMaxSms];
};
static_assert(sizeof(SkeletonArguments) == 112 + 64 + 44 + 60 + 512);

// Whether a tile's moments are kept: a golden-ratio sequence, evenly spread against any period of the order.
__device__ __forceinline__ bool is_kept(u32 place, u32 threshold) { return place * 2654435769u <= threshold; }

}  // namespace xstage::emulation
