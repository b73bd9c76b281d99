// The knobs of one variant of the fused MoE layer, and what follows from them.
//
//   FORMAT          0 bf16; 1 e4m3 with fp32 scales (format.cuh)
//   BLOCK_M         rows of a tile: 128, or 64 for layers with fewer rows an expert
//   BLOCK_N         columns of a tile: 128 or 256; a Linear-1 tile has half of them of the gate, half of up
//   STAGES          buffers of both operands, each 128 bytes deep
//   STAGING_SLOTS   S: where a consumer's finished part of a tile waits for its stores
//   STORE_FLAVOUR   0 16-byte stores, 1 bulk copies, of what Linear-2 sends
//   TICKETS         1 tiles are taken by tickets, 0 as the scheduler deals them
//   DISPATCH        1 pulls routed rows from the ranks' buffers, 0 finds them in the pool
//   RECORD_SPANS    1 records the spans of every tile
//   SHARED_BYTES    what the host reserves of shared memory, which must be what is used here
//
//   block_m  the two consumers have        registers of products  operands read of shared memory a product
//   128      64 rows each, all columns     block_n / 2            80 bytes a cycle at 256 columns, of 128
//   64       all rows, half the columns    block_n / 4            112 to 128, but such layers wait for weights
//
// e4m3 is built for 128x256 alone: of Linear-1 a consumer then has whole blocks of 128 activations, whose scales it
// finds by itself. Of its 256 columns half are multiplied at a time, or two sets of sums would not fit
// (e4m3_products.cuh).
#pragma once

#include "common/swizzle.cuh"
#include "common/types.cuh"
#include "common/warpgroup.cuh"
#include "megamoe/format.cuh"

namespace xstage::megamoe {

constexpr u32 kBlockM = BLOCK_M;
constexpr u32 kBlockN = BLOCK_N;
constexpr u32 kBlockK = kSwizzleRowBytes / kElementBytes;
constexpr u32 kStages = STAGES;
constexpr u32 kStagingSlots = STAGING_SLOTS;
constexpr bool kTickets = TICKETS;
constexpr bool kDispatch = DISPATCH;
constexpr bool kRecordSpans = RECORD_SPANS;

enum class StoreFlavour { register_stores, bulk_copies };
constexpr StoreFlavour kStoreFlavour = STORE_FLAVOUR == 0 ? StoreFlavour::register_stores : StoreFlavour::bulk_copies;

constexpr u32 kConsumers = 2;
constexpr u32 kConsumerWarps = 4 * kConsumers;
constexpr u32 kMovingWarps = 4;  // one that loads, one that publishes Linear-1, and one for each consumer that stores
constexpr u32 kThreads = kWarpThreads * (kConsumerWarps + kMovingWarps);

// Of 64 K registers an SM each thread has 168 at first, without which the widest product does not compile: so there
// is one warpgroup beside the consumers and no more.
constexpr u32 kMovingRegisters = 72;
constexpr u32 kConsumerRegisters = 216;
static_assert(kMovingRegisters + kConsumers * kConsumerRegisters <= 3 * 168);

// A consumer's part of a tile.
constexpr u32 kPartRows = 64;
constexpr bool kSplitColumns = kBlockM == kPartRows;
constexpr u32 kPartColumns = kSplitColumns ? kBlockN / 2 : kBlockN;
// With split columns two products, so that a Linear-1 part has gate and up of the same columns; with scales one for
// each block of weights.
constexpr u32 kProducts = kSplitColumns || kScaled ? 2 : 1;
constexpr u32 kProductColumns = kPartColumns / kProducts;
// A stage's weights come and go in as many pieces: with scales product by product, so that those of the first are free,
// and on their way again, while the second is computed.
constexpr u32 kColumnPieces = kScaled ? kProducts : 1;

static_assert(kBlockM == 64 || kBlockM == 128);
static_assert(kBlockN == 128 || kBlockN == 256);
static_assert(!kSplitColumns || kBlockN == 256, "a part of a Linear-1 tile is whole rows of 64 columns");
static_assert(!kScaled || (!kSplitColumns && kProductColumns == kScaleBlock && kBlockK == kScaleBlock),
              "a product has one scale of its weights, and a part's activations one a row");
static_assert(kStages >= 2 && kStagingSlots >= 1);

constexpr u32 kRowsBytes = kBlockM * kSwizzleRowBytes;     // of one stage: tokens
constexpr u32 kColumnsBytes = kBlockN * kSwizzleRowBytes;  // and weights
constexpr u32 kStageBytes = kRowsBytes + kColumnsBytes;
constexpr u32 kColumnPieceBytes = kColumnsBytes / kColumnPieces;

// Scales of a stage: of its rows, then of the weights of both products.
constexpr u32 kRowScalesBytes = kBlockM * sizeof(float);
constexpr u32 kStageScalesBytes = kScaled ? kRowScalesBytes + 16 : 0;
static_assert(kProducts * sizeof(float) <= 16);

// A slot holds a part of a Linear-2 tile row by row, each 16 bytes beyond a power of two: eight rows then begin in
// different banks, and a row leaves as one piece. Or a part of a Linear-1 tile, half as wide, as tensor copies have it,
// and behind it the scales of its rows.
constexpr u32 kSlotRowBytes = kPartColumns * 2 + 16;
constexpr u32 kSlotBytes = kPartRows * kSlotRowBytes;
constexpr u32 kActivationChunks = kPartColumns / 2 / kBlockK;
constexpr u32 kChunkBytes = kPartRows * kSwizzleRowBytes;
constexpr u32 kActivationScalesOffset = kActivationChunks * kChunkBytes;
constexpr u32 kPartScalesBytes = kScaled ? kPartRows * sizeof(float) : 0;
static_assert(kActivationScalesOffset + kPartScalesBytes <= kSlotBytes && kSlotBytes % kSwizzleAtomBytes == 0);

// Tiles between their being scheduled and their being stored: one that is loaded, one that is computed, those that
// are staged.
constexpr u32 kTileRing = kStagingSlots + 3;

// Places in dynamic shared memory. Tiles first: a swizzled tile begins at a multiple of 1,024 bytes.
constexpr u32 kStagingOffset = kStages * kStageBytes;
constexpr u32 kPipelineOffset = kStagingOffset + kConsumers * kStagingSlots * kSlotBytes;
constexpr u32 kPipelineBytes = 1024;
constexpr u32 kScalesOffset = kPipelineOffset + kPipelineBytes;
// Places for pieces of rows between a rank and the pool. All but one are on their way: 1.3 MB over all SMs, more than
// a link holds in 2 us.
constexpr u32 kPieces = 6;
constexpr u32 kPieceBytes = 2048;
constexpr u32 kPiecesOffset = kScalesOffset + kStages * kStageScalesBytes;
// Of a recording variant, which takes what is left for staged spans.
constexpr u32 kRecordingOffset = kPiecesOffset + (kDispatch ? kPieces * kPieceBytes : 0);

static_assert(SHARED_BYTES >= kRecordingOffset && (kRecordSpans || SHARED_BYTES == kRecordingOffset));

}  // namespace xstage::megamoe
