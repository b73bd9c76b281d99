// What the roles of one CTA share, and where a tile's bytes go.
#pragma once

#include "common/pattern.cuh"
#include "common/mbarrier.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/arguments.cuh"
#include "emulation/queue.cuh"
#include "emulation/tile_sources.cuh"
#include "emulation/waits.cuh"

namespace xstage::emulation {

// A lane: the persistent CTA of one SM.
struct Cta {
    const SkeletonArguments& arguments;
    u32 lane;
    u64 start_ns;
    u64 origin_cycles;  // the lane's cycle_begin
    char* slots;
    Mbarrier* full;     // one a slot: its tile's mainloop has ended
    Mbarrier* free;     // one a slot: its tile is stored, and every storing role has passed it
    Mbarrier* stored;   // one a place in the queue: its tile is stored, and the place may be used again
    QueueEntry* queue;  // from the loader role to the mainloop and the signal role
    TileLinks* links;   // counters of the tiles found; the loader role's
    u32* words;         // one a thread of the issue role
    TileMoments* moments;
    LaneTiles tiles;

    __device__ char* slot(u32 index) const { return slots + static_cast<u64>(index) * arguments.slot_bytes; }
    __device__ u32 since_origin(u64 cycles) const { return static_cast<u32>(cycles - origin_cycles); }

    __device__ Waiter waiter(Role role) const {
        constexpr u64 kPatienceNs = 50'000'000;
        const u64 later_ns = static_cast<u64>(role) * kPatienceNs;
        return {arguments.control, start_ns + arguments.duration_ns + later_ns, lane, role};
    }
};

// Slot and lap of a role's current tile; tiles take the slots in turn.
struct SlotCursor {
    u32 slot = 0;
    u32 lap = 0;

    __device__ __forceinline__ void advance(u32 slots) {
        if (++slot == slots) {
            slot = 0;
            ++lap;
        }
    }
};

// Row of the moments of the tile at hand; a tile that is not kept has none.
class KeptCursor {
public:
    __device__ explicit KeptCursor(const Cta& cta) : next_(cta.moments), threshold_(cta.arguments.keep_threshold) {}

    // The row of the tile at `place`, null if it is not kept. Once for every place, in order.
    __device__ __forceinline__ TileMoments* row(u32 place) {
        return is_kept(place, threshold_) ? next_++ : nullptr;
    }

private:
    TileMoments* next_;
    u32 threshold_;
};

// A lane's ring in the memory of one owner. All rings together are well beyond L2, so that no store is merged with
// one of an earlier lap.
class Ring {
public:
    __device__ Ring(char* base, u64 ring_bytes, u32 slot_bytes, u32 first_slot)
        : begin_(base),
          end_(base + ring_bytes),
          at_(base + static_cast<u64>(first_slot) * slot_bytes),
          step_(slot_bytes) {}

    // Where a tile's bytes go; the next tile that has any goes behind it.
    __device__ __forceinline__ char* place(u32 bytes) {
        char* here = at_;
        if (bytes != 0) {
            at_ += step_;
            at_ = at_ == end_ ? begin_ : at_;
        }
        return here;
    }

private:
    char* begin_;
    char* end_;
    char* at_;
    u32 step_;
};

struct Rings {
    Ring remote;
    Ring local;

    __device__ explicit Rings(const Cta& cta)
        : remote(cta.arguments.remote + cta.lane * cta.arguments.remote_ring_bytes, cta.arguments.remote_ring_bytes,
                 cta.arguments.remote_slot_bytes, cta.arguments.first_remote_slot),
          local(cta.arguments.local + cta.lane * cta.arguments.local_ring_bytes, cta.arguments.local_ring_bytes,
                cta.arguments.local_slot_bytes, cta.arguments.first_local_slot) {}
};

// A tile to the roles that store.
struct Burst {
    char* from;  // its slot: remote bytes first, then local ones
    char* remote;
    char* local;
    u32 remote_bytes;
    u32 local_bytes;
    u32 number;  // the tile's place, in the first word of each piece
};

}  // namespace xstage::emulation
