// The loader role: finds the lane's tiles ahead of the mainloop, and lets each through when what it depends on is
// there. A fused kernel's TMA producer does both, so the mainloop meets a tile whose counter it need not poll.
//
// Its poll of a row counter is the only load from global memory in timed code; it queues behind the stores, as the
// fused kernel's does.
#pragma once

#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/cta.cuh"
#include "emulation/primitives.cuh"
#include "emulation/queue.cuh"
#include "emulation/tile_sources.cuh"
#include "emulation/waits.cuh"
#include "megamoe/row_counter.cuh"

namespace xstage::emulation {

// One thread.
template <typename Tiles>
class LoaderRole {
public:
    __device__ LoaderRole(const Cta& cta, Tiles& tiles) : cta_(cta), tiles_(tiles) {}

    // Returns the source's sum over the tiles that it gave.
    __device__ u64 run() {
        const Waiter waiter = cta_.waiter(Role::loader);
        const u32 count = cta_.tiles.count;
        for (u32 place = 0; place < count;) {
            // Found ahead of a counter that is not complete, so that finding never adds to a wait.
            if (found_ < count && has_room()) {
                find();
            }
            if (found_ == place) {
                pause_ns(kPauseNs);  // all that has room in the queue has been passed
            } else {
                look_up(place);
                if (is_complete()) {
                    put_entry(cta_.queue + pass_at_.index, entry_);
                    pass_at_.advance(cta_.arguments.queue_tiles);
                    ++place;
                    continue;
                }
            }
            if (global_timer_ns() > waiter.deadline_ns) {
                if (found_ != place) {
                    waiter.raise(Wait::counter, place, waits_on_, expected_, seen_);
                }
                break;
            }
        }
        return tiles_.order_check();
    }

private:
    // A tile stored frees room for one of several that the loader is ahead: no mainloop waits for this.
    static constexpr u32 kPauseNs = 500;

    // Whether the tile a lap before the next one is stored, so that nobody needs its entry any more.
    __device__ bool has_room() const {
        return found_at_.lap == 0 || phase_has_ended(cta_.stored[found_at_.index], (found_at_.lap - 1) & 1);
    }

    __device__ void find() {
        cta_.links[found_at_.index] = tiles_.take(found_++);
        found_at_.advance(cta_.arguments.queue_tiles);
    }

    // Once for a tile, and all of it, so that nothing but its hand-over comes after its counter.
    __device__ void look_up(u32 place) {
        if (entry_.number() == place + 1) {
            return;
        }
        const TileLinks links = cta_.links[pass_at_.index];
        const TilePlan& plan = cta_.tiles.plans[place];
        const bool at_end = cta_.tiles.store_of(place).raises == static_cast<u32>(Raises::at_end);
        waits_on_ = links.waits_on;
        expected_ = plan.expected;
        entry_ = QueueEntry::of(place, pass_at_.lap,
                                {plan.mainloop_cycles, plan.slot_offset_cycles, links.signals, at_end});
    }

    __device__ bool is_complete() {
        if (waits_on_ == kNoCounter) {
            return true;
        }
        seen_ = megamoe::read_counter(cta_.arguments.counters + waits_on_);
        return seen_ >= expected_;
    }

    const Cta& cta_;
    Tiles& tiles_;
    QueueCursor found_at_, pass_at_;
    u32 found_ = 0;
    QueueEntry entry_{};  // of the tile to be passed next
    u32 waits_on_ = kNoCounter;
    u32 expected_ = 0;
    u32 seen_ = 0;
};

}  // namespace xstage::emulation
