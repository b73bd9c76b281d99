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
        u32 found = 0;
        for (u32 passed = 0; passed < count;) {
            // Found ahead of a counter that is not complete, so that finding never adds to a wait.
            if (found < count && has_room()) {
                find(found++);
            }
            if (passed == found) {
                pause_ns(kPauseNs);  // all that has room in the queue has been passed
            } else if (is_complete(passed)) {
                pass(passed++);
                continue;
            }
            if (global_timer_ns() > waiter.deadline_ns) {
                give_up(waiter, passed, found);
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

    __device__ void find(u32 place) {
        cta_.links[found_at_.index] = tiles_.take(place);
        found_at_.advance(cta_.arguments.queue_tiles);
    }

    __device__ bool is_complete(u32 place) {
        const u32 counter = cta_.links[pass_at_.index].waits_on;
        if (counter == kNoCounter) {
            return true;
        }
        seen_ = megamoe::read_counter(cta_.arguments.counters + counter);
        return seen_ >= cta_.tiles.plans[place].expected;
    }

    __device__ void pass(u32 place) {
        const TilePlan& plan = cta_.tiles.plans[place];
        const bool at_end = cta_.tiles.store_of(place).raises == static_cast<u32>(Raises::at_end);
        const u32 signals = cta_.links[pass_at_.index].signals;
        put_entry(cta_.queue + pass_at_.index,
                  QueueEntry::of(place, pass_at_.lap, {plan.mainloop_cycles, plan.slot_offset_cycles, signals, at_end}));
        pass_at_.advance(cta_.arguments.queue_tiles);
    }

    __device__ void give_up(const Waiter& waiter, u32 passed, u32 found) const {
        if (passed < found) {
            const u32 counter = cta_.links[pass_at_.index].waits_on;
            waiter.raise(Wait::counter, passed, counter, cta_.tiles.plans[passed].expected, seen_);
        }
    }

    const Cta& cta_;
    Tiles& tiles_;
    QueueCursor found_at_, pass_at_;
    u32 seen_ = 0;
};

}  // namespace xstage::emulation
