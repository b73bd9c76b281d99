// The device's scheduler for ctypes: every tile of one CTA, in its order; and tiles by their tickets.
#include "megamoe/scheduler.cuh"

using namespace xstage;
using namespace xstage::megamoe;

namespace {

// Writes (layer, row, n_tile, expert, m_block, tokens).
void put(const Tile& tile, u32* columns) {
    const u32 values[] = {static_cast<u32>(tile.layer), tile.row, tile.n_tile, tile.expert, tile.m_block, tile.tokens};
    for (u32 value : values) {
        *columns++ = value;
    }
}

constexpr u32 kColumns = 6;

}  // namespace

// Up to `most` tiles; returns how many there are.
extern "C" u32 take_tiles(const SchedulerParameters* parameters, u32 instance, u32 rank, u32 most, u32* tiles) {
    u16 positions[2 * kMostWeight];
    find_positions(*parameters, instance, positions, 0, 1);
    Scheduler scheduler(*parameters, instance, rank, positions);
    u32 taken = 0;
    for (Tile tile; scheduler.next(tile); ++taken) {
        if (taken < most) {
            put(tile, tiles + taken * kColumns);
        }
    }
    return taken;
}

// The tiles of some tickets, which ascend; returns how many of them have one.
extern "C" u32 take_tickets(const SchedulerParameters* parameters, const u32* tickets, u32 count, u32* tiles) {
    TicketOrder order(*parameters);
    u32 taken = 0;
    for (Tile tile; taken < count && order.at(tickets[taken], tile); ++taken) {
        put(tile, tiles + taken * kColumns);
    }
    return taken;
}
