// Where a lane's tiles come from: `take(place)` gives the counters of the tile of the next place.
#pragma once

#include "common/types.cuh"
#include "emulation/arguments.cuh"
#include "megamoe/scheduler.cuh"

namespace xstage::emulation {

// The lane's part of what the host listed: the length of each mainloop and its kind of store, in shared memory
// before the start, since a load from global memory in timed code would queue behind the stores.
struct LaneTiles {
    const TilePlan* plans;
    const TileLinks* listed;  // listed orders only
    const StorePlan* stores;
    u32 count;

    __device__ __forceinline__ const StorePlan& store_of(u32 place) const { return stores[plans[place].store]; }
};

// MegaMoE: the order and the counters come from the fused kernel's own scheduler; only lengths are listed.
class MegaMoeTiles {
public:
    __device__ MegaMoeTiles(const SkeletonArguments& arguments, const megamoe::SchedulerParameters& parameters,
                            u32 lane, const u16* positions)
        : scheduler_(parameters, instance_of(parameters, lane), lane % parameters.cta_group, positions),
          columns_(parameters.cta_group * max(parameters.l1_groups, parameters.l2_groups)),
          dependencies_(arguments.dependencies != 0) {}

    __device__ TileLinks take(u32 place) {
        megamoe::Tile tile{};
        scheduler_.next(tile);
        const bool linear2 = tile.layer == megamoe::Layer::linear2;
        // Sensitive to each tile and to its place; the host makes the same sum of the order that it expects.
        const u64 number = (static_cast<u64>(tile.row) * columns_ + tile.n_tile) * 2 + (linear2 ? 1 : 0);
        order_check_ += (number + 1) * (place + 1);
        return {dependencies_ && linear2 ? tile.row : kNoCounter, dependencies_ && !linear2 ? tile.row : kNoCounter};
    }

    __device__ u64 order_check() const { return order_check_; }

    // A lane left over by the clusters has no tiles, and may pass for one of the last.
    __device__ static u32 instance_of(const megamoe::SchedulerParameters& parameters, u32 lane) {
        return min(lane / parameters.cta_group, parameters.instances - 1);
    }

private:
    megamoe::Scheduler scheduler_;
    u32 columns_;
    bool dependencies_;
    u64 order_check_ = 0;
};

// Any order and any counters, as listed. FA-A2A uses it: its order is static and depends on nothing, so a kernel
// would find a tile by one division, and there is no scheduler to try out.
class ListedTiles {
public:
    __device__ explicit ListedTiles(LaneTiles tiles) : tiles_(tiles) {}

    __device__ TileLinks take(u32 place) const { return tiles_.listed[place]; }

    __device__ u64 order_check() const { return 0; }

private:
    LaneTiles tiles_;
};

}  // namespace xstage::emulation
