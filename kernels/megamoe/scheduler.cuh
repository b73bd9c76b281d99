// The order in which one scheduler instance of a MegaMoE kernel takes its tiles, one tile at a time.
//
// A row is a block of tokens of one expert; rows are numbered over the experts in turn. Row p has P1 groups of
// Linear-1 and P2 of Linear-2, a group being the neighbouring N-tiles that the CTAs of a cluster take together
// (one on Hopper, a pair on Blackwell). Each layer is a stream of groups, k = p*P_i + column; an instance is one
// cluster. All schedules merge what an instance takes of both streams by one rule: Linear-2 of row p comes once
// the instance's Linear-1 has reached row lead(p), or is exhausted.
//
//   interleaved   lead(p) = p + D, D >= 1                              (Algorithm 1 of arXiv 2607.23264)
//   alternating   by count: a warm-up of Linear-1, then 1:1; at least p + 1         (DeepGEMM of July 2026)
//   wave          lead(p) = first row behind the expert wave of p             (the historical baseline)
//   clamped_lag   lead(p) = first row of the unit `lag` units behind p's group of units     (open Hopper change)
//
// `wave` and `clamped_lag` merge the whole streams and then stride them over the instances, unless a placement
// deals the streams by weights; the others stride or deal first. xstage_tune.families.megamoe.order is
// the same in numpy, and the tests hold both together tile by tile.
//
// `Scheduler` deals the tiles to the instances beforehand. `TicketOrder` has one instance's order, whose tiles all
// CTAs take one after the other, each the next one when it has time for it.
//
// A tile is found from a few numbers per expert (first rows, tokens) and per instance (its weights), by cursors
// that only move forward: no table of tiles, and amortised O(1) a tile.
//
// Contract of the row counters. Whoever has stored a Linear-1 tile adds 1 to its row's counter, with release at
// GPU scope; a Linear-2 tile of the row begins when the counter has reached the N-tiles of Linear-1
// (kernels/megamoe/row_counter.cuh).
//
// Why nothing deadlocks. On every instance (a) each stream comes in ascending rows, and (b) a Linear-2 group of row
// p follows all of the instance's own Linear-1 groups of rows <= p, because lead(p) >= p + 1: for any D >= 1, any
// warm-up, and any weights. All instances are resident, and the roles that store never wait for a counter. Suppose
// that all instances are blocked, and let p be the least row on which one waits. Some Linear-1 group of row p is
// then undone; it lies behind the blocked head of its instance, a Linear-2 group that waits on a row q >= p. By (b)
// that group follows all of its Linear-1 groups of rows <= q, so of row p too: a contradiction. Linear-1 waits
// on nothing. With tickets the order is one, and whoever holds the lowest ticket that is not done waits for nothing:
// what it depends on has lower ones.
//
// Compiles for the device and for the host.
#pragma once

#include "common/host_device.cuh"
#include "common/types.cuh"

namespace xstage::megamoe {

// The numbers are those of the host's arguments.
enum class Schedule : u32 { wave = 0, interleaved = 1, alternating = 2, clamped_lag = 3 };
enum class Layer : u32 { linear1 = 1, linear2 = 2 };

constexpr u32 kMostWeight = 64;    // of an instance in a placement
constexpr u32 kLagUnitRows = 8;    // rows of one expert, fewer at its end
constexpr u32 kLagGroupUnits = 4;  // units that become due together
constexpr u32 kNone = ~0u;         // behind every row and every group

struct SchedulerParameters {
    const u32* tokens_per_expert;  // [experts]
    const u32* first_row;          // [experts + 1]; the last entry is the number of rows
    const u8* l1_weights;          // [instances] of a placement, or null for plain strides
    const u8* l2_weights;
    u32 experts;
    u32 block_m;  // tokens of a full row
    u32 l1_groups;
    u32 l2_groups;
    u32 instances;
    u32 cta_group;  // N-tiles of a group
    Schedule schedule;
    u32 parameter;  // experts of a wave | D | Linear-1 groups of the warm-up | units of lag
};

struct Tile {
    Layer layer;
    u32 row;
    u32 n_tile;
    u32 expert;
    u32 m_block;  // of the expert
    u32 tokens;   // valid ones: block_m, less in the last row of an expert
};

// Where an instance's groups lie in a cycle of its stream. A cycle has as many groups as the weights' sum, and a
// weight's groups come evenly spread: the j-th of weight w at (2j + 1) / (2w) of it, equal ones by instance. So
// group j comes behind all (h, i) with (2i + 1) * w < (2j + 1) * w_h. Without weights: behind the instances
// before it.
struct Deal {
    u32 count;  // positions, the instance's weight
    u32 cycle;
};

XSTAGE_HOST_DEVICE Deal deal(const u8* weights, u32 instances, u32 instance) {
    if (weights == nullptr) {
        return {1, instances};
    }
    u32 cycle = 0;
    for (u32 other = 0; other < instances; ++other) {
        cycle += weights[other];
    }
    return {weights[instance], cycle};
}

XSTAGE_HOST_DEVICE u32 position_of(const u8* weights, u32 instances, u32 instance, u32 turn) {
    if (weights == nullptr) {
        return instance;
    }
    u32 before = 0;
    for (u32 other = 0; other < instances; ++other) {
        // Odd numbers o with o * weight below reach, or at it where the other instance goes first.
        const u32 reach = (2 * turn + 1) * weights[other] + (other < instance ? 1 : 0);
        before += reach == 0 ? 0 : ((reach - 1) / weights[instance] + 1) / 2;
    }
    return before;
}

// Fills kMostWeight positions of Linear-1, then as many of Linear-2, for one instance; by any number of threads.
XSTAGE_HOST_DEVICE void find_positions(const SchedulerParameters& parameters, u32 instance, u16* positions, u32 thread,
                                       u32 threads) {
    const u8* weights[] = {parameters.l1_weights, parameters.l2_weights};
    for (u32 layer = 0; layer < 2; ++layer) {
        const u32 count = weights[layer] == nullptr ? 1 : weights[layer][instance];
        for (u32 turn = thread; turn < count; turn += threads) {
            positions[layer * kMostWeight + turn] =
                static_cast<u16>(position_of(weights[layer], parameters.instances, instance, turn));
        }
    }
}

// An instance's groups of one stream, in order.
class GroupCursor {
public:
    XSTAGE_HOST_DEVICE GroupCursor(Deal deal, const u16* positions, u32 groups)
        : deal_(deal), positions_(positions), groups_(groups) {
        settle();
    }

    XSTAGE_HOST_DEVICE bool exhausted() const { return group_ == kNone; }
    XSTAGE_HOST_DEVICE u32 group() const { return group_; }
    XSTAGE_HOST_DEVICE u32 taken() const { return taken_; }

    XSTAGE_HOST_DEVICE void advance() {
        ++taken_;
        if (++turn_ == deal_.count) {
            turn_ = 0;
            begin_ += deal_.cycle;
        }
        settle();
    }

private:
    XSTAGE_HOST_DEVICE void settle() {
        group_ = deal_.count == 0 ? kNone : begin_ + positions_[turn_];
        if (group_ >= groups_) {
            group_ = kNone;
        }
    }

    Deal deal_;
    const u16* positions_;
    u32 groups_;
    u32 begin_ = 0;  // of the cycle
    u32 turn_ = 0;
    u32 taken_ = 0;
    u32 group_ = kNone;
};

// From a row to its expert, for rows that only ascend.
class ExpertCursor {
public:
    XSTAGE_HOST_DEVICE u32 expert_of(const SchedulerParameters& parameters, u32 row) {
        while (row >= parameters.first_row[expert_ + 1]) {
            ++expert_;
        }
        return expert_;
    }

private:
    u32 expert_ = 0;
};

// From a unit of lag to its first row, for units that only ascend.
class UnitCursor {
public:
    XSTAGE_HOST_DEVICE u32 first_row_of(const SchedulerParameters& parameters, u32 unit) {
        while (expert_ < parameters.experts) {
            const u32 first = parameters.first_row[expert_];
            const u32 units = (parameters.first_row[expert_ + 1] - first + kLagUnitRows - 1) / kLagUnitRows;
            if (unit < units_before_ + units) {
                return first + (unit - units_before_) * kLagUnitRows;
            }
            units_before_ += units;
            ++expert_;
        }
        return parameters.first_row[parameters.experts];
    }

private:
    u32 expert_ = 0;
    u32 units_before_ = 0;  // in the experts before
};

// The parts of a merged order: in each, the Linear-1 rows [l1_begin, l1_end), then the Linear-2 rows
// [l2_begin, l2_end), all of which have the lead l1_end.
class SegmentCursor {
public:
    XSTAGE_HOST_DEVICE explicit SegmentCursor(const SchedulerParameters& parameters) { advance(parameters); }

    XSTAGE_HOST_DEVICE void advance(const SchedulerParameters& parameters) {
        l1_begin = l1_end;
        l2_begin = l2_end;
        ++ended_;
        if (parameters.schedule == Schedule::wave) {
            const u64 experts = static_cast<u64>(ended_) * parameters.parameter;
            l1_end = parameters.first_row[experts < parameters.experts ? experts : parameters.experts];
            l2_end = l1_end;
        } else {
            l1_end = ahead_.first_row_of(parameters, ended_ * kLagGroupUnits + parameters.parameter);
            l2_end = behind_.first_row_of(parameters, ended_ * kLagGroupUnits);
        }
    }

    u32 l1_begin = 0, l1_end = 0;
    u32 l2_begin = 0, l2_end = 0;

private:
    u32 ended_ = 0;  // segments begun
    UnitCursor ahead_, behind_;
};

// From a group to its tile, for groups that only ascend in either layer.
class TileFinder {
public:
    XSTAGE_HOST_DEVICE Tile tile_of(const SchedulerParameters& parameters, Layer layer, u32 group, u32 rank) {
        const bool first = layer == Layer::linear1;
        const u32 groups = first ? parameters.l1_groups : parameters.l2_groups;
        const u32 row = group / groups;
        const u32 expert = (first ? expert1_ : expert2_).expert_of(parameters, row);
        const u32 m_block = row - parameters.first_row[expert];
        const u32 left = parameters.tokens_per_expert[expert] - m_block * parameters.block_m;
        return {layer,   row,
                (group - row * groups) * parameters.cta_group + rank,
                expert,  m_block,
                left < parameters.block_m ? left : parameters.block_m};
    }

private:
    ExpertCursor expert1_, expert2_;
};

class Scheduler {
public:
    // `positions`: as found by `find_positions`; `rank`: of the CTA in its cluster.
    XSTAGE_HOST_DEVICE Scheduler(const SchedulerParameters& parameters, u32 instance, u32 rank, const u16* positions)
        : parameters_(parameters),
          rank_(rank),
          rows_(parameters.first_row[parameters.experts]),
          position_(instance),
          linear1_(deal(parameters.l1_weights, parameters.instances, instance), positions,
                   rows_ * parameters.l1_groups),
          linear2_(deal(parameters.l2_weights, parameters.instances, instance), positions + kMostWeight,
                   rows_ * parameters.l2_groups),
          segment_(parameters) {}

    // The instance's next tile; false when there is none left.
    XSTAGE_HOST_DEVICE bool next(Tile& tile) {
        const bool by_segment =
            parameters_.schedule == Schedule::wave || parameters_.schedule == Schedule::clamped_lag;
        return by_segment && parameters_.l1_weights == nullptr ? next_of_merged(tile) : next_of_dealt(tile);
    }

private:
    // Stride over the merged order: position m lies in the segment that begins at l1_begin*P1 + l2_begin*P2.
    XSTAGE_HOST_DEVICE bool next_of_merged(Tile& tile) {
        const u32 p1 = parameters_.l1_groups, p2 = parameters_.l2_groups;
        if (position_ >= rows_ * (p1 + p2)) {
            return false;
        }
        while (position_ >= segment_.l1_end * p1 + segment_.l2_end * p2) {
            segment_.advance(parameters_);
        }
        const u32 offset = position_ - (segment_.l1_begin * p1 + segment_.l2_begin * p2);
        const u32 l1_groups = (segment_.l1_end - segment_.l1_begin) * p1;
        position_ += parameters_.instances;
        if (offset < l1_groups) {
            tile = tile_of(Layer::linear1, segment_.l1_begin * p1 + offset);
        } else {
            tile = tile_of(Layer::linear2, segment_.l2_begin * p2 + offset - l1_groups);
        }
        return true;
    }

    XSTAGE_HOST_DEVICE bool next_of_dealt(Tile& tile) {
        if (!linear2_.exhausted() && (linear1_.exhausted() || linear2_is_due())) {
            tile = tile_of(Layer::linear2, linear2_.group());
            linear2_.advance();
            return true;
        }
        if (linear1_.exhausted()) {
            return false;
        }
        tile = tile_of(Layer::linear1, linear1_.group());
        linear1_.advance();
        return true;
    }

    // Whether Linear-1, not yet exhausted, has reached lead(p) of the next Linear-2 group.
    XSTAGE_HOST_DEVICE bool linear2_is_due() {
        const u32 reached = linear1_.group() / parameters_.l1_groups;
        const u32 row = linear2_.group() / parameters_.l2_groups;
        if (parameters_.schedule == Schedule::interleaved) {
            return reached >= row && reached - row >= parameters_.parameter;
        }
        if (parameters_.schedule == Schedule::alternating) {
            return reached > row && linear1_.taken() >= linear2_.taken() &&
                   linear1_.taken() - linear2_.taken() >= parameters_.parameter;
        }
        while (row >= segment_.l2_end) {
            segment_.advance(parameters_);
        }
        return reached >= segment_.l1_end;
    }

    XSTAGE_HOST_DEVICE Tile tile_of(Layer layer, u32 group) {
        return finder_.tile_of(parameters_, layer, group, rank_);
    }

    SchedulerParameters parameters_;
    u32 rank_;
    u32 rows_;
    u32 position_;  // in the merged order
    GroupCursor linear1_, linear2_;
    SegmentCursor segment_;
    TileFinder finder_;
};

// One instance's order by its tickets, which may be left out but only ascend. Of CTAs without clusters.
//
// Linear-2 group k comes behind `linear1_before(k)` groups of Linear-1, so it has ticket k + linear1_before(k), and
// the tickets between two of them are Linear-1's. Within a row that number is fixed, or of `alternating` grows by at
// most 1 a group, so a step of so many groups ends at the first one that is not before the ticket, or before it. The
// last ticket is one of Linear-2.
class TicketOrder {
public:
    XSTAGE_HOST_DEVICE explicit TicketOrder(const SchedulerParameters& parameters)
        : parameters_(parameters), rows_(parameters.first_row[parameters.experts]), segment_(parameters) {}

    // The tile of a ticket; false when there is none.
    XSTAGE_HOST_DEVICE bool at(u32 ticket, Tile& tile) {
        const u32 p1 = parameters_.l1_groups, p2 = parameters_.l2_groups;
        if (ticket >= rows_ * (p1 + p2)) {
            return false;
        }
        u32 behind = linear2_ + linear1_before();
        while (behind < ticket) {
            const u32 row_end = (row_ + 1) * p2;
            const u32 ahead = ticket - behind;
            const u32 step = parameters_.schedule == Schedule::alternating ? (ahead + 1) / 2 : ahead;
            linear2_ = step < row_end - linear2_ ? linear2_ + step : row_end;
            row_ += linear2_ == row_end ? 1 : 0;
            behind = linear2_ + linear1_before();
        }
        tile = ticket == behind ? finder_.tile_of(parameters_, Layer::linear2, linear2_, 0)
                                : finder_.tile_of(parameters_, Layer::linear1, ticket - linear2_, 0);
        return true;
    }

private:
    XSTAGE_HOST_DEVICE u32 linear1_before() {
        const u32 p1 = parameters_.l1_groups;
        if (parameters_.schedule == Schedule::interleaved) {
            const u32 lead = parameters_.parameter;
            return (lead < rows_ - row_ ? row_ + lead : rows_) * p1;
        }
        if (parameters_.schedule == Schedule::alternating) {
            const u32 least = (row_ + 1) * p1;
            const u32 counted = linear2_ + parameters_.parameter;
            const u32 before = counted < least ? least : counted;
            return before < rows_ * p1 ? before : rows_ * p1;
        }
        while (row_ >= segment_.l2_end) {
            segment_.advance(parameters_);
        }
        return segment_.l1_end * p1;
    }

    SchedulerParameters parameters_;
    u32 rows_;
    u32 linear2_ = 0;  // the next group of Linear-2,
    u32 row_ = 0;      // of this row
    SegmentCursor segment_;
    TileFinder finder_;
};

}  // namespace xstage::megamoe
