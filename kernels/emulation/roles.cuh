// The roles of a CTA: one thread stands for the mainloop, one role stores finished tiles in order, and one thread
// stores those that other CTAs wait for.
//
// A tile's way: the mainloop role waits for its counter, runs into the mainloop up to the slot offset, waits for a
// slot, ends the mainloop, and arrives at full[slot]. The issue role, or the signal role for a tile that raises a
// counter when stored, turns to the tiles in order and arrives at free[slot] when the tile has been given away. Both
// storing roles walk through all tiles and arrive at every free[slot], so neither can fall a lap behind the barriers.
#pragma once

#include "common/store.cuh"
#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/cta.cuh"
#include "emulation/stores.cuh"
#include "emulation/waits.cuh"
#include "megamoe/row_counter.cuh"

namespace xstage::emulation {

// The mainloop role of one lane; one thread.
template <typename Tiles>
class MainloopRole {
public:
    __device__ MainloopRole(const Cta& cta, Tiles& tiles) : cta_(cta), tiles_(tiles), kept_(cta) {}

    __device__ MainloopTotals run() {
        const Waiter waiter = cta_.waiter(Role::mainloop);
        Work work{}, next{};
        bool more = tiles_.take(0, work);
        spin_until_ns(cta_.start_ns);
        u64 ready = sm_clock();
        for (u32 place = 0; more; ++place) {
            // All of the role's time is in one of: dependency wait, mainloop, stall. What the handing over of the
            // tile before takes falls on the wait that follows it.
            u64 begin = ready;
            if (work.waits_on != kNoCounter) {
                const u32* counter = cta_.arguments.counters + work.waits_on;
                if (!wait_for_counter(waiter, counter, work.waits_on, work.expected, place)) {
                    break;
                }
                begin = sm_clock();
                totals_.dependency_cycles += begin - ready;
            }
            // The next tile is looked up, and the last one recorded, under the first spin that there is.
            u64 wanted = begin;
            if (work.slot_offset_cycles != 0) {
                more = tiles_.take(place + 1, next);
                record();
                spin_until_cycle(begin + work.slot_offset_cycles);
                wanted = sm_clock();
            }
            if (!wait_for_slot(waiter, place)) {
                break;
            }
            const u64 taken = sm_clock();
            fill_slot(work, place);
            if (work.slot_offset_cycles == 0) {
                more = tiles_.take(place + 1, next);
                record();
            }
            spin_until_cycle(taken + (work.mainloop_cycles - work.slot_offset_cycles));
            const u64 end = sm_clock();
            cta_.full[slot_.slot].arrive();
            slot_.advance(cta_.arguments.slots);
            if (work.signals_at_end != kNoCounter) {
                megamoe::raise_counter_after_reads(cta_.arguments.counters + work.signals_at_end);
            }
            totals_.mainloop_cycles += (wanted - begin) + (end - taken);
            totals_.stall_cycles += taken - wanted;
            row_ = kept_.row(place);
            moments_ = {cta_.since_origin(ready), cta_.since_origin(begin), cta_.since_origin(wanted),
                        cta_.since_origin(taken), cta_.since_origin(end),   0, 0, 0};
            ready = end;
            work = next;
        }
        record();
        totals_.order_check = tiles_.order_check();
        return totals_;
    }

private:
    __device__ bool wait_for_slot(const Waiter& waiter, u32 place) {
        // The slot's first tile finds it free.
        return slot_.lap == 0 ||
               wait_for_lap(waiter, cta_.free[slot_.slot], slot_.lap - 1, Wait::free_slot, place, slot_.slot);
    }

    // What the owner will check, and whom to tell: the slot is this role's until it arrives at full[slot].
    __device__ void fill_slot(const Work& work, u32 place) const {
        char* slot = cta_.slot(slot_.slot);
        for (u32 offset = 0; offset < work.bytes; offset += kPieceBytes) {
            *reinterpret_cast<u32*>(slot + offset) = place;
        }
        cta_.counters[slot_.slot] = work.signals;
        fence_shared_for_bulk();
    }

    // Stages what is known of the last tile, if it is kept.
    __device__ void record() {
        if (row_ != nullptr) {
            row_->ready = moments_.ready;
            row_->begin = moments_.begin;
            row_->wanted = moments_.wanted;
            row_->taken = moments_.taken;
            row_->end = moments_.end;
            row_ = nullptr;
        }
    }

    const Cta& cta_;
    Tiles& tiles_;
    KeptCursor kept_;
    SlotCursor slot_;
    MainloopTotals totals_{};
    TileMoments moments_{};
    TileMoments* row_ = nullptr;
};

// What the two storing roles have in common: they walk through all tiles of the lane, each stores its own.
class StoringRole {
public:
    __device__ StoringRole(const Cta& cta, Role role)
        : cta_(cta), waiter_(cta.waiter(role)), rings_(cta), kept_(cta), is_signal_(role == Role::signal) {}

    __device__ const IssueTotals& totals() const { return totals_; }

protected:
    // Turns to the tile at `place` when its mainloop has ended. Leaves in `mine_` whether this role stores it.
    __device__ bool turn_to(u32 place) {
        if (!wait_for_lap(waiter_, cta_.full[slot_.slot], slot_.lap, Wait::finished_tile, place, slot_.slot)) {
            return false;
        }
        counter_ = cta_.counters[slot_.slot];
        const StorePlan& plan = cta_.tiles.store_of(place);
        burst_ = {cta_.slot(slot_.slot), rings_.remote.place(plan.remote_bytes), rings_.local.place(plan.local_bytes),
                  plan.remote_bytes, plan.local_bytes};
        staging_cycles_ = plan.staging_cycles;
        row_ = kept_.row(place);
        const bool mine = (counter_ != kNoCounter) == is_signal_;
        // In order: not before the other role has stored the tile before.
        if (mine && !mine_ && place != 0 &&
            !wait_for_lap(waiter_, cta_.free[before_.slot], before_.lap, Wait::turn, place, before_.slot)) {
            return false;
        }
        mine_ = mine;
        return true;
    }

    // T_RS begins, with what the role spends on the tile beyond its stores.
    __device__ void begin() {
        begin_ = sm_clock();
        spin_until_cycle(begin_ + staging_cycles_);
    }

    // One thread of the role: adds up a stored tile.
    __device__ void account(u64 accepted, u64 freed) {
        ++totals_.tiles;
        totals_.issue_cycles += accepted - begin_;
        totals_.completion_cycles += freed - accepted;
        totals_.finish_cycle = accepted;
        if (burst_.remote_bytes != 0) {
            ++totals_.remote_tiles;
            totals_.remote_issue_cycles += accepted - begin_;
        }
        if (row_ != nullptr) {
            row_->issue = cta_.since_origin(begin_);
            row_->accepted = cta_.since_origin(accepted);
            row_->freed = cta_.since_origin(freed);
        }
    }

    __device__ void arrive_free() { cta_.free[slot_.slot].arrive(); }

    __device__ void advance() {
        before_ = slot_;
        slot_.advance(cta_.arguments.slots);
    }

    const Cta& cta_;
    Waiter waiter_;
    Rings rings_;
    KeptCursor kept_;
    SlotCursor slot_, before_;
    Burst burst_{};
    TileMoments* row_ = nullptr;
    u64 begin_ = 0;
    u32 staging_cycles_ = 0;
    u32 counter_ = kNoCounter;
    bool is_signal_;
    bool mine_ = true;
    IssueTotals totals_{};
};

// Flavour st.v4: all threads of the role call `run`; thread 0 keeps the totals.
class VectorIssueRole : StoringRole {
public:
    __device__ VectorIssueRole(const Cta& cta, u32* words)
        : StoringRole(cta, Role::issue), thread_(threadIdx.x), word_(words + threadIdx.x) {}

    using StoringRole::totals;

    __device__ void run() {
        for (u32 place = 0; place < cta_.tiles.count; ++place) {
            // All threads or none give up, and no thread still looks at full[slot] once one has arrived at free[slot].
            const bool turned = turn_to(place);
            if (issue_barrier(turned ? 0 : ~0u)) {
                return;
            }
            if (mine_) {
                begin();
                VectorStores::store(burst_, thread_, word_);
                const u64 accepted = sm_clock();
                if (cta_.arguments.coupled != 0) {
                    VectorStores::await_visibility();
                }
                if (thread_ == 0) {
                    const u64 freed = cta_.arguments.coupled != 0 ? sm_clock() : accepted;
                    arrive_free();
                    account(accepted, freed);
                }
            } else if (thread_ == 0) {
                arrive_free();
            }
            advance();
        }
    }

private:
    u32 thread_;
    u32* word_;
};

// Flavour tma: one thread.
class BulkIssueRole : StoringRole {
public:
    __device__ explicit BulkIssueRole(const Cta& cta) : StoringRole(cta, Role::issue) {}

    using StoringRole::totals;

    __device__ void run() {
        for (u32 place = 0; place < cta_.tiles.count && turn_to(place); ++place) {
            if (mine_) {
                begin();
                BulkStores::store(burst_);
                const u64 accepted = sm_clock();
                if (cta_.arguments.coupled != 0) {
                    BulkStores::await_visibility();
                }
                const u64 freed = cta_.arguments.coupled != 0 ? sm_clock() : accepted;
                arrive_free();
                account(accepted, freed);
            } else {
                arrive_free();
            }
            advance();
        }
        bulk_wait_complete();  // shared memory must outlive the copies
    }
};

// Either flavour: one thread stores the tiles that raise a counter, as bulk copies of its own, so that their
// visibility, and the release, wait for no remote store (kernels/megamoe/row_counter.cuh). The issue role does not
// wait for the signal; what it takes is in `signal_cycles` and in no span.
class SignalRole : StoringRole {
public:
    __device__ explicit SignalRole(const Cta& cta) : StoringRole(cta, Role::signal) {}

    using StoringRole::totals;

    __device__ void run() {
        for (u32 place = 0; place < cta_.tiles.count && turn_to(place); ++place) {
            if (mine_) {
                begin();
                BulkStores::store(burst_);
                const u64 accepted = sm_clock();
                arrive_free();
                account(accepted, accepted);
                bulk_wait_complete();
                megamoe::raise_counter(cta_.arguments.counters + counter_);
                totals_.signal_cycles += sm_clock() - accepted;
            } else {
                arrive_free();
            }
            advance();
        }
    }
};

}  // namespace xstage::emulation
