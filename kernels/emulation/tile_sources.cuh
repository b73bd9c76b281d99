// Where a lane's tiles come from. `take(place, work)` gives the tile of the next place, false behind the last.
#pragma once

#include "common/types.cuh"
#include "emulation/arguments.cuh"
#include "megamoe/scheduler.cuh"

namespace xstage::emulation {

// A tile to the mainloop role.
struct Work {
    u32 mainloop_cycles;
    u32 slot_offset_cycles;
    u32 bytes;  // that it puts into its slot
    u32 waits_on;
    u32 expected;
    u32 signals;  // when stored
    u32 signals_at_end;
};

// The lane's part of what the host listed: the length of each mainloop and its kind of store, in shared memory
// before the start, since a load from global memory in timed code would queue behind the stores.
struct LaneTiles {
    const TilePlan* plans;
    const TileLinks* links;
    const StorePlan* stores;
    u32 count;

    __device__ __forceinline__ const StorePlan& store_of(u32 place) const { return stores[plans[place].store]; }

    // A tile of this place with its counters.
    __device__ Work work(u32 place, u32 waits_on, u32 expected, u32 signals) const {
        const TilePlan& plan = plans[place];
        const StorePlan& store = store_of(place);
        const bool at_end = store.signals_at_end != 0;
        return {plan.mainloop_cycles, plan.slot_offset_cycles,        store.remote_bytes + store.local_bytes,
                waits_on,             expected,                       at_end ? kNoCounter : signals,
                at_end ? signals : kNoCounter};
    }
};

// MegaMoE: the order and the counters come from the fused kernel's own scheduler; only lengths are listed.
class MegaMoeTiles {
public:
    __device__ MegaMoeTiles(const SkeletonArguments& arguments, const megamoe::SchedulerParameters& parameters,
                            LaneTiles tiles, u32 lane, const u16* positions)
        : scheduler_(parameters, instance_of(parameters, lane), lane % parameters.cta_group, positions),
          tiles_(tiles),
          l1_tiles_(arguments.l1_tiles),
          columns_(parameters.cta_group * max(parameters.l1_groups, parameters.l2_groups)),
          dependencies_(arguments.dependencies != 0) {}

    __device__ bool take(u32 place, Work& work) {
        megamoe::Tile tile;
        if (place >= tiles_.count || !scheduler_.next(tile)) {
            return false;
        }
        const bool linear2 = tile.layer == megamoe::Layer::linear2;
        // Sensitive to each tile and to its place; the host makes the same sum of the order that it expects.
        const u64 number = (static_cast<u64>(tile.row) * columns_ + tile.n_tile) * 2 + (linear2 ? 1 : 0);
        order_check_ += (number + 1) * (place + 1);
        work = tiles_.work(place, dependencies_ && linear2 ? tile.row : kNoCounter, l1_tiles_,
                           dependencies_ && !linear2 ? tile.row : kNoCounter);
        return true;
    }

    // A lane left over by the clusters has no tiles, and may pass for one of the last.
    __device__ static u32 instance_of(const megamoe::SchedulerParameters& parameters, u32 lane) {
        return min(lane / parameters.cta_group, parameters.instances - 1);
    }

    __device__ u64 order_check() const { return order_check_; }

private:
    megamoe::Scheduler scheduler_;
    LaneTiles tiles_;
    u32 l1_tiles_;
    u32 columns_;
    bool dependencies_;
    u64 order_check_ = 0;
};

// Any order and any counters, as listed. FA-A2A uses it: its order is static and depends on nothing, so a kernel
// would find a tile by one division, and there is no scheduler to try out.
class ListedTiles {
public:
    __device__ explicit ListedTiles(LaneTiles tiles) : tiles_(tiles) {}

    __device__ bool take(u32 place, Work& work) const {
        if (place >= tiles_.count) {
            return false;
        }
        const TileLinks& links = tiles_.links[place];
        work = tiles_.work(place, links.waits_on, tiles_.plans[place].expected, links.signals);
        return true;
    }

    __device__ u64 order_check() const { return 0; }

private:
    LaneTiles tiles_;
};

}  // namespace xstage::emulation
