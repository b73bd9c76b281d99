// The mainloop role: waits for its next tile and for a staging slot, and spins for as long as the mainloop takes.
//
// It touches shared memory as little as a role can: between two spins it arrives at a barrier and waits at another.
// Under backpressure of register stores every access takes its turn behind those that fill the SM's load/store unit:
// with eight accesses a tile under the spin, spins of 12.7 us lasted up to 48 on an H200. A spin that is longer than
// asked for shows what is left of that. Bulk copies do not pass that unit.
#pragma once

#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/cta.cuh"
#include "emulation/primitives.cuh"
#include "emulation/queue.cuh"
#include "emulation/waits.cuh"
#include "megamoe/row_counter.cuh"

namespace xstage::emulation {

// One thread.
class MainloopRole {
public:
    __device__ explicit MainloopRole(const Cta& cta) : cta_(cta), waiter_(cta.waiter(Role::mainloop)), kept_(cta) {}

    __device__ MainloopTotals run() {
        const u32 count = cta_.tiles.count;
        QueueEntry next = get_entry(cta_.queue);
        spin_until_ns(cta_.start_ns);
        u64 ready = sm_clock();
        for (u32 place = 0; place < count; ++place) {
            // All of the role's time is in one of: dependency wait, mainloop, stall.
            QueueEntry entry = next;
            u64 begin = ready;
            if (!entry.holds(place, at_.lap)) {
                if (!wait_for_tile(place, entry)) {
                    break;
                }
                begin = sm_clock();
            }
            const QueuedTile tile = entry.tile();
            if (tile.slot_offset_cycles != 0) {
                account(place);
                spin_until_cycle(begin + tile.slot_offset_cycles);
            }
            // The slot's first tile finds it free.
            if (slot_.lap != 0 && !wait_for_lap(waiter_, cta_.free[slot_.slot], slot_.lap - 1, Wait::free_slot, place,
                                                slot_.slot)) {
                break;
            }
            const u64 taken = sm_clock();
            const u64 rest_cycles = tile.mainloop_cycles - tile.slot_offset_cycles;
            Mbarrier& full = cta_.full[slot_.slot];
            // The next tile is looked up, and the last one accounted for, under the spin.
            at_.advance(cta_.arguments.queue_tiles);
            next = get_entry(cta_.queue + at_.index);
            if (tile.slot_offset_cycles == 0) {
                account(place);
            }
            slot_.advance(cta_.arguments.slots);
            spin_until_cycle(taken + rest_cycles);
            const u64 end = sm_clock();
            full.arrive();
            if (tile.at_end) {
                megamoe::raise_counter_after_reads(cta_.arguments.counters + tile.signals);
            }
            last_ = {ready, begin, taken, end, tile.slot_offset_cycles};
            ready = end;
        }
        account(count);
        return totals_;
    }

private:
    struct Moments {
        u64 ready, begin, taken, end;
        u32 slot_offset_cycles;
    };

    __device__ bool wait_for_tile(u32 place, QueueEntry& entry) const {
        while (!(entry = get_entry(cta_.queue + at_.index)).holds(place, at_.lap)) {
            if (global_timer_ns() > waiter_.deadline_ns) {
                waiter_.raise(Wait::next_tile, place, at_.index, place + 1, entry.number());
                return false;
            }
        }
        return true;
    }

    // Adds up the tile before `place`, and stages its moments if they are kept. Once for every place, in order.
    __device__ void account(u32 place) {
        if (place == 0) {
            return;
        }
        totals_.dependency_cycles += last_.begin - last_.ready;
        totals_.stall_cycles += last_.taken - last_.begin - last_.slot_offset_cycles;
        totals_.mainloop_cycles += last_.end - last_.taken + last_.slot_offset_cycles;
        if (TileMoments* row = kept_.row(place - 1)) {
            *reinterpret_cast<uint4*>(row) = make_uint4(cta_.since_origin(last_.ready), cta_.since_origin(last_.begin),
                                                        cta_.since_origin(last_.taken), cta_.since_origin(last_.end));
        }
    }

    const Cta& cta_;
    Waiter waiter_;
    KeptCursor kept_;
    SlotCursor slot_;
    QueueCursor at_;
    Moments last_{};
    MainloopTotals totals_{};
};

}  // namespace xstage::emulation
