// Stand-in for kernels/common/mbarrier.cuh. Ends the process where an arrival is one too many for its phase.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "common/types.cuh"

namespace xstage {

class Mbarrier {
public:
    void init(u32 arrivals) {
        phase_.store(0);
        pending_.store(static_cast<short>(arrivals));
        arrivals_ = static_cast<short>(arrivals);
    }

    void arrive() {
        const short left = static_cast<short>(pending_.fetch_sub(1) - 1);
        if (left < 0) {
            std::fprintf(stderr, "an arrival too many\n");
            std::_Exit(3);
        }
        if (left == 0) {
            pending_.store(arrivals_);
            phase_.fetch_add(1);
            wake();
        }
    }

    bool is_complete(u32 parity) const { return (phase_.load() & 1) != parity; }

    // Waits a while for a phase to end.
    void wait_a_while(u32 parity) const;

private:
    void wake();

    std::atomic<u32> phase_;
    std::atomic<short> pending_;
    short arrivals_;
};
static_assert(sizeof(Mbarrier) == 8);

inline void fence_barrier_init() {}

}  // namespace xstage
