// The knobs of one variant, and what follows from them.
//
//   HEAD_DIM         64 or 128
//   BLOCK_M          query rows of a tile: 64 for each consumer warpgroup
//   BLOCK_N          KV rows of an inner tile, a multiple of 16
//   KV_STAGES        buffers of K, and as many of V
//   OUTPUT_STAGING   where a finished tile waits for its stores: 0 in Q's buffer, 1 in those of V, 2 or 3 in one or
//                    two of its own
//   KV_SPLITS        1, or 2: CTAs that share a tile, see team.cuh
//   STORE_FLAVOUR    0 16-byte stores: of the consumers, all at once, or out of a buffer of its own by a storer warp,
//                    spread over the next Q-loop; 1 tensor copies out of the staging buffer
//   RECORD_SPANS     1 records the spans of every tile
//   WRITE_LSE        1 also writes every row's log-sum-exp
//   SHARED_BYTES     what the host reserves of shared memory, which must be what is used here
//   OMIT_SIGNAL      0; 1 makes a wrong kernel, on which the check of the completion is tested
//
//   block_m  consumers  registers a thread  what limits block_n at head_dim 128
//   128      2          240                 176: shared memory (208 KiB with two stages)
//   192      3          160                 128: shared memory and registers, without the overlap of products
#pragma once

#include "common/types.cuh"
#include "common/warpgroup.cuh"
#include "common/wgmma.cuh"

namespace xstage {

constexpr u32 kHeadDim = HEAD_DIM;
constexpr u32 kBlockM = BLOCK_M;
constexpr u32 kBlockN = BLOCK_N;
constexpr u32 kKvStages = KV_STAGES;
constexpr u32 kKvSplits = KV_SPLITS;
constexpr bool kRecordSpans = RECORD_SPANS;
constexpr bool kWriteLse = WRITE_LSE;

enum class Staging { alias_query, alias_value, dedicated };
constexpr Staging kStaging = OUTPUT_STAGING == 0   ? Staging::alias_query
                             : OUTPUT_STAGING == 1 ? Staging::alias_value
                                                   : Staging::dedicated;
constexpr u32 kStagingSlots = OUTPUT_STAGING == 3 ? 2 : 1;
enum class StoreFlavour { register_stores, tensor_copies };
constexpr StoreFlavour kStoreFlavour = STORE_FLAVOUR == 0 ? StoreFlavour::register_stores : StoreFlavour::tensor_copies;

constexpr bool kPaced = kStaging == Staging::dedicated && kStoreFlavour == StoreFlavour::register_stores;

constexpr u32 kWarpgroupRows = 64;
constexpr u32 kConsumers = kBlockM / kWarpgroupRows;
constexpr u32 kFinishers = kConsumers / kKvSplits;  // of a CTA's consumers, whose rows it stores
constexpr u32 kConsumerWarps = 4 * kConsumers;
constexpr u32 kConsumerThreads = kConsumers * kWarpgroupThreads;
constexpr u32 kThreads = kConsumerThreads + kWarpgroupThreads;
// Together at most the 64 K registers of an SM. A storer warp needs more than the loading one.
constexpr u32 kLoadRegisters = kConsumers == 2 ? (kPaced ? 40 : 24) : (kPaced ? 56 : 32);
constexpr u32 kConsumerRegisters = kConsumers == 2 ? (kPaced ? 232 : 240) : (kPaced ? 152 : 160);

// Scores of one KV tile, probabilities of the one before, and the output, in registers at once; else one after the
// other. Besides them the Q-loop needs 28.
constexpr bool kOverlap = kBlockN / 2 + kBlockN / 4 + kHeadDim / 2 + 28 <= kConsumerRegisters;

constexpr u32 kRowBytes = kHeadDim * 2;
constexpr u32 kChunks = kRowBytes / kSwizzleRowBytes;  // a tile is stored as so many columns of 128 bytes
constexpr u32 kWarpgroupTileBytes = kWarpgroupRows * kRowBytes;
constexpr u32 kKvBytes = kBlockN * kRowBytes;

static_assert(kHeadDim == 64 || kHeadDim == 128);
static_assert(kConsumers == 2 || kConsumers == 3, "block_m is 128 or 192");
static_assert(kBlockN % 16 == 0 && kKvStages >= 1);
static_assert(kKvSplits == 1 || (kKvSplits == kConsumers && kStaging == Staging::dedicated),
              "each CTA of a split tile finishes the rows of one consumer, which waits for nobody else's");
static_assert(kStaging != Staging::alias_value || kBlockM <= kKvStages * kBlockN, "the output fits into V's buffers");

// Places in dynamic shared memory. Tiles first: a swizzled tile begins at a multiple of 1,024 bytes.
constexpr u32 kQueryOffset = 0;
constexpr u32 kKeyOffset = kQueryOffset + kConsumers * kWarpgroupTileBytes;
constexpr u32 kValueOffset = kKeyOffset + kKvStages * kKvBytes;
constexpr u32 kStagingOffset = kStaging == Staging::alias_query   ? kQueryOffset
                               : kStaging == Staging::alias_value ? kValueOffset
                                                                  : kValueOffset + kKvStages * kKvBytes;
constexpr u32 kStagingBytes = kStaging == Staging::dedicated ? kStagingSlots * kFinishers * kWarpgroupTileBytes : 0;
// What one consumer of a split tile's other CTA stores here: its output, and a vector for each two rows.
constexpr u32 kPartialBytes =
    kKvSplits == 1 ? 0 : kWarpgroupRows * kHeadDim * sizeof(float) + kWarpgroupRows / 2 * sizeof(FloatVector);
constexpr u32 kPartialOffset = kValueOffset + kKvStages * kKvBytes + kStagingBytes;
constexpr u32 kPipelineOffset = kPartialOffset + kPartialBytes;
constexpr u32 kPipelineBytes = 1024;
// Of a recording variant, which takes what is left for staged spans.
constexpr u32 kRecordingOffset = kPipelineOffset + kPipelineBytes;

static_assert(SHARED_BYTES >= kRecordingOffset && (kRecordSpans || SHARED_BYTES == kRecordingOffset));

// Named barriers; 0 is __syncthreads. From each of the first two on, one a consumer warpgroup.
constexpr u32 kWarpgroupBarrier = 1;
constexpr u32 kTurnBarrier = kWarpgroupBarrier + kConsumers;
constexpr u32 kConsumersBarrier = kTurnBarrier + kConsumers;
constexpr u32 kStoredBarrier = kConsumersBarrier + 1;

// All that store output.
constexpr u32 kStoringThreads = kConsumerThreads + (kPaced ? kFinishers * kWarpThreads : 0);

}  // namespace xstage
