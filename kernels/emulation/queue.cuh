// The queue in which the loader role hands tiles to the others.
#pragma once

#include "common/host_device.cuh"
#include "common/types.cuh"

namespace xstage::emulation {

struct QueuedTile {
    u32 mainloop_cycles;
    u32 slot_offset_cycles;
    u32 signals;  // its counter, of 30 bits; anything if it has none
    bool at_end;  // the counter is raised when the mainloop ends
};

// Place of a role's current tile in the queue.
struct QueueCursor {
    u32 index = 0;
    u32 lap = 0;

    XSTAGE_HOST_DEVICE void advance(u32 tiles) {
        if (++index == tiles) {
            index = 0;
            ++lap;
        }
    }
};

// A place of the queue.
//
// The mainloop role can afford one access to look for its next tile, so what says that a tile is there is read along
// with the tile. To PTX nothing wider than 64 bits is one access: a vector of two words is two, in either order. So
// each word says by itself whose it is, the first by the tile's place and the second by its lap, and whoever finds
// both his has all of the tile, with nothing else to be ordered. A lap's parity is enough: an entry shows the tile
// awaited or the one a lap before, zeros before the first, since its next tile comes when this one is stored.
struct alignas(16) QueueEntry {
    u64 first;   // place + 1; mainloop_cycles
    u64 second;  // slot_offset_cycles; signals, at_end and the lap's tag

    XSTAGE_HOST_DEVICE static QueueEntry of(u32 place, u32 lap, QueuedTile tile) {
        const u32 tagged = (tile.signals & kSignalsMask) | (tile.at_end ? kAtEnd : 0) | tag(lap);
        return {join(place + 1, tile.mainloop_cycles), join(tile.slot_offset_cycles, tagged)};
    }

    // The tile's place + 1, by the first word; 0 if there was none yet.
    XSTAGE_HOST_DEVICE u32 number() const { return low(first); }

    XSTAGE_HOST_DEVICE bool holds(u32 place, u32 lap) const {
        return number() == place + 1 && (high(second) & kTagMask) == tag(lap);
    }

    XSTAGE_HOST_DEVICE QueuedTile tile() const {
        return {high(first), low(second), high(second) & kSignalsMask, (high(second) & kAtEnd) != 0};
    }

private:
    static constexpr u32 kTagMask = 1u << 31;
    static constexpr u32 kAtEnd = 1u << 30;
    static constexpr u32 kSignalsMask = kAtEnd - 1;

    XSTAGE_HOST_DEVICE static u32 tag(u32 lap) { return (lap + 1) << 31; }
    XSTAGE_HOST_DEVICE static u64 join(u32 low, u32 high) { return static_cast<u64>(high) << 32 | low; }
    XSTAGE_HOST_DEVICE static u32 low(u64 word) { return static_cast<u32>(word); }
    XSTAGE_HOST_DEVICE static u32 high(u64 word) { return static_cast<u32>(word >> 32); }
};
static_assert(sizeof(QueueEntry) == 16);

}  // namespace xstage::emulation
