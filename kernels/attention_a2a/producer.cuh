// The producer warp: one thread that keeps the copies of Q, K and V ahead of the consumers.
#pragma once

#include "attention_a2a/admission.cuh"
#include "attention_a2a/arguments.cuh"
#include "attention_a2a/pipeline.cuh"

namespace xstage {

using KvPosition = RingPosition<kKvStages>;

__device__ __forceinline__ void load_kv(char* buffers, const TensorMap& map, Mbarrier* full, Mbarrier* empty,
                                        KvPosition& position, u32 kv_tile, u32 head) {
    empty[position.stage].wait(position.parity ^ 1);
    full[position.stage].arrive_expecting(kKvBytes);
    load_box(buffers + position.stage * kKvBytes, map, full[position.stage], 0, static_cast<int>(kv_tile * kBlockN), 0,
             static_cast<int>(head));
    position.advance();
}

// KV tiles go from the last to the first: the partial one comes first and the consumers' loop needs no mask. K runs
// one tile ahead of V, in the order in which the consumers use them.
__device__ void produce(const AttentionArguments& arguments, const TileGrid& grid, Pipeline& pipeline, char* shared) {
    prefetch_map(arguments.query);
    prefetch_map(arguments.key);
    prefetch_map(arguments.value);
    const Admission admission(arguments.exchange, arguments.call);
    const KvRange kv = kv_range((arguments.kv_tokens - 1) / kBlockN + 1);
    KvPosition keys;
    KvPosition values;
    u32 parity = 0;
    for (u32 place = team(); place < grid.tiles(); place += teams(arguments), parity ^= 1) {
        const Tile tile = grid.at(static_cast<TileOrder>(arguments.tile_order), place);
        pipeline.query_empty.wait(parity ^ 1);
        pipeline.tile = tile;
        pipeline.query_full.arrive_expecting(kConsumers * kWarpgroupTileBytes);
        for (u32 consumer = 0; consumer < kConsumers; ++consumer) {
            const u32 first_row = tile.block * kBlockM + consumer * kWarpgroupRows;
            load_box(shared + kQueryOffset + consumer * kWarpgroupTileBytes, arguments.query, pipeline.query_full, 0,
                     static_cast<int>(first_row), 0, static_cast<int>(tile.head));
        }
        load_kv(shared + kKeyOffset, arguments.key, pipeline.key_full, pipeline.key_empty, keys,
                kv.first + kv.tiles - 1, tile.head);
#pragma unroll 1
        for (u32 left = kv.tiles; left > 0; --left) {
            if (left > 1) {
                load_kv(shared + kKeyOffset, arguments.key, pipeline.key_full, pipeline.key_empty, keys,
                        kv.first + left - 2, tile.head);
            }
            if (kStaging == Staging::alias_value && left == kv.tiles) {
                pipeline.alias_empty.wait(parity ^ 1);  // of the tile before; passes at once on the first
            }
            if (left == 1 && place == team()) {
                pipeline.output_slot = admission.slot(arguments.epoch_bytes);
            }
            load_kv(shared + kValueOffset, arguments.value, pipeline.value_full, pipeline.value_empty, values,
                    kv.first + left - 1, tile.head);
        }
    }
}

}  // namespace xstage
