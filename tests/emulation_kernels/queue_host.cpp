// The queue's entries for ctypes.
#include "emulation/queue.cuh"

using namespace xstage;
using namespace xstage::emulation;

// tile: mainloop_cycles, slot_offset_cycles, signals, at_end.
extern "C" void write_entry(u64* words, u32 place, u32 lap, const u32* tile) {
    const QueueEntry entry = QueueEntry::of(place, lap, {tile[0], tile[1], tile[2], tile[3] != 0});
    words[0] = entry.first;
    words[1] = entry.second;
}

// Whether the words are an entry that holds the tile; if so, writes it.
extern "C" u32 read_entry(const u64* words, u32 place, u32 lap, u32* tile) {
    const QueueEntry entry = {words[0], words[1]};
    if (!entry.holds(place, lap)) {
        return 0;
    }
    const QueuedTile held = entry.tile();
    tile[0] = held.mainloop_cycles;
    tile[1] = held.slot_offset_cycles;
    tile[2] = held.signals;
    tile[3] = held.at_end ? 1 : 0;
    return 1;
}
