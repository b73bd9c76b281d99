// The kernel's tile order for the tests, through the C calling convention.
#include "attention_a2a/tile_order.cuh"

extern "C" unsigned tile_count(unsigned tokens, unsigned heads, unsigned block_m, unsigned ranks, unsigned rank) {
    return xstage::TileGrid(tokens, heads, block_m, ranks, rank).tiles();
}

extern "C" void tiles(unsigned tokens, unsigned heads, unsigned block_m, unsigned ranks, unsigned rank, unsigned order,
                      unsigned* head, unsigned* block) {
    const xstage::TileGrid grid(tokens, heads, block_m, ranks, rank);
    for (unsigned place = 0; place < grid.tiles(); ++place) {
        const xstage::Tile tile = grid.at(static_cast<xstage::TileOrder>(order), place);
        head[place] = tile.head;
        block[place] = tile.block;
    }
}
