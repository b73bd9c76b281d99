// The device's scheduler for ctypes: every tile of one CTA, in its order.
#include "megamoe/scheduler.cuh"

using namespace xstage;
using namespace xstage::megamoe;

// Writes (layer, row, n_tile, expert, m_block, tokens) of up to `most` tiles; returns how many there are.
extern "C" u32 take_tiles(const SchedulerParameters* parameters, u32 instance, u32 rank, u32 most, u32* tiles) {
    u16 positions[2 * kMostWeight];
    find_positions(*parameters, instance, positions, 0, 1);
    Scheduler scheduler(*parameters, instance, rank, positions);
    u32 taken = 0;
    for (Tile tile; scheduler.next(tile); ++taken) {
        if (taken < most) {
            const u32 columns[] = {static_cast<u32>(tile.layer), tile.row, tile.n_tile,
                                   tile.expert, tile.m_block, tile.tokens};
            for (u32 column : columns) {
                *tiles++ = column;
            }
        }
    }
    return taken;
}
