// Emulated: see cta.hpp.
#pragma once

#include "cta.hpp"
#include "common/types.cuh"

namespace xstage {

inline u32 shared_address(const void* pointer) {
    return static_cast<u32>(static_cast<const char*>(pointer) - ::shared);
}

class Mbarrier {
public:
    void init(u32 arrivals) {
        bytes_ = 0;
        expected_ = left_ = static_cast<u8>(arrivals);
        phase_ = 0;
    }

    void arrive() {
        arrive_from_afar();
        emulator::dawdle();
    }

    // No thread of this CTA arrives.
    void arrive_from_afar() {
        if (left_ == 0) {
            emulator::fail("more arrivals at a barrier than it expects");
            return;
        }
        --left_;
        complete();
    }

    void arrive_expecting(u32 bytes) {
        bytes_ += static_cast<int>(bytes);
        arrive();
    }

    void copied(u32 bytes) {
        bytes_ -= static_cast<int>(bytes);
        complete();
    }

    void wait(u32 parity) {
        emulator::wait_until([at = address(), parity] {
            const auto* self = reinterpret_cast<const Mbarrier*>(emulator::shared_memory() + at);
            return self->phase_ % 2 != parity;
        });
    }

    u32 address() const { return shared_address(this); }

private:
    void complete() {
        if (left_ == 0 && bytes_ == 0) {
            left_ = expected_;
            ++phase_;
        }
    }

    int bytes_;
    u8 expected_;
    u8 left_;
    u8 phase_;
};
static_assert(sizeof(Mbarrier) == 8);

inline void fence_barrier_init() {}

}  // namespace xstage
