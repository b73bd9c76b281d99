// The roles that store finished tiles, in order: the issue role, and the signal role for tiles that others wait for.
//
// Both walk through all tiles of the lane; each stores its own and arrives at free[slot] for every one, so that
// neither can fall a lap behind the barriers.
#pragma once

#include "common/timer.cuh"
#include "common/types.cuh"
#include "emulation/cta.cuh"
#include "emulation/primitives.cuh"
#include "emulation/queue.cuh"
#include "emulation/stores.cuh"
#include "emulation/waits.cuh"
#include "megamoe/row_counter.cuh"

namespace xstage::emulation {

class StoringRole {
public:
    __device__ StoringRole(const Cta& cta, Role role)
        : cta_(cta), waiter_(cta.waiter(role)), rings_(cta), kept_(cta), is_signal_(role == Role::signal) {}

    __device__ const IssueTotals& totals() const { return totals_; }

protected:
    // Looks the tile at `place` up, whoever stores it.
    __device__ void look_up(u32 place) {
        const StorePlan& plan = cta_.tiles.store_of(place);
        burst_ = {cta_.slot(slot_.slot),
                  rings_.remote.place(plan.remote_bytes),
                  rings_.local.place(plan.local_bytes),
                  plan.remote_bytes,
                  plan.local_bytes,
                  place};
        staging_cycles_ = plan.staging_cycles;
        row_ = kept_.row(place);
        was_mine_ = mine_;
        mine_ = (plan.raises == static_cast<u32>(Raises::when_stored)) == is_signal_;
    }

    // Waits until the tile's mainloop has ended and, if this role stores it, until the other has stored the one before.
    __device__ bool await_turn(u32 place) const {
        if (!wait_for_lap(waiter_, cta_.full[slot_.slot], slot_.lap, Wait::finished_tile, place, slot_.slot)) {
            return false;
        }
        return !mine_ || was_mine_ || place == 0 ||
               wait_for_lap(waiter_, cta_.free[before_.slot], before_.lap, Wait::turn, place, before_.slot);
    }

    // T_RS begins, with what the role spends on the tile beyond its stores.
    __device__ void begin() {
        begin_ = sm_clock();
        spin_until_cycle(begin_ + staging_cycles_);
    }

    // Whether the tile keeps its slot until its remote owner could see it.
    __device__ bool is_coupled() const { return cta_.arguments.coupled != 0 && burst_.remote_bytes != 0; }

    // One thread of the role: adds up a stored tile.
    __device__ void account(u64 accepted, u64 freed) {
        cta_.stored[at_.index].arrive();
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
        at_.advance(cta_.arguments.queue_tiles);
    }

    const Cta& cta_;
    Waiter waiter_;
    Rings rings_;
    KeptCursor kept_;
    SlotCursor slot_, before_;
    QueueCursor at_;
    Burst burst_{};
    TileMoments* row_ = nullptr;
    u64 begin_ = 0;
    u32 staging_cycles_ = 0;
    bool is_signal_;
    bool mine_ = true, was_mine_ = true;
    IssueTotals totals_{};
};

// Flavour st.v4: all threads of the role call `run`; thread 0 keeps the totals.
class VectorIssueRole : StoringRole {
public:
    __device__ explicit VectorIssueRole(const Cta& cta)
        : StoringRole(cta, Role::issue), thread_(threadIdx.x), word_(cta.words + threadIdx.x) {}

    using StoringRole::totals;

    __device__ void run() {
        for (u32 place = 0; place < cta_.tiles.count; ++place) {
            look_up(place);
            // All threads or none give up, and no thread still looks at full[slot] once one has arrived at free[slot].
            if (any_is_ones<kVectorThreads>(await_turn(place) ? 0 : ~0u)) {
                return;
            }
            if (mine_) {
                begin();
                VectorStores::store(burst_, thread_, word_);
                const u64 accepted = sm_clock();
                u64 freed = accepted;
                if (is_coupled()) {
                    VectorStores::await_visibility();
                    freed = sm_clock();
                }
                if (thread_ == 0) {
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
        for (u32 place = 0; place < cta_.tiles.count; ++place) {
            look_up(place);
            if (!await_turn(place)) {
                break;
            }
            if (mine_) {
                BulkStores::prepare(burst_);
                begin();
                BulkStores::store(burst_);
                const u64 accepted = sm_clock();
                u64 freed = accepted;
                if (is_coupled()) {
                    BulkStores::await_visibility();
                    freed = sm_clock();
                }
                arrive_free();
                account(accepted, freed);
            } else {
                arrive_free();
            }
            advance();
        }
        BulkStores::await_visibility();  // shared memory must outlive the copies
    }
};

// Either flavour: one thread stores the tiles that raise a counter, as bulk copies of its own, so that their
// visibility waits for no remote store (kernels/megamoe/row_counter.cuh). The issue role does not wait for the
// signal; what it takes is in `signal_cycles` and in no span.
class SignalRole : StoringRole {
public:
    __device__ explicit SignalRole(const Cta& cta) : StoringRole(cta, Role::signal) {}

    using StoringRole::totals;

    __device__ void run() {
        for (u32 place = 0; place < cta_.tiles.count; ++place) {
            look_up(place);
            if (!await_turn(place)) {
                break;
            }
            if (mine_) {
                // The mainloop role saw this entry before it arrived at full[slot], so this role sees no older one.
                const u32 counter = get_entry(cta_.queue + at_.index).tile().signals;
                BulkStores::prepare(burst_);
                begin();
                BulkStores::store(burst_);
                const u64 accepted = sm_clock();
                arrive_free();
                account(accepted, accepted);
                BulkStores::await_visibility();
                megamoe::raise_counter(cta_.arguments.counters + counter);
                totals_.signal_cycles += sm_clock() - accepted;
            } else {
                arrive_free();
            }
            advance();
        }
    }
};

}  // namespace xstage::emulation
