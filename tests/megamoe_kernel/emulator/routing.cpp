// The kernels around a MoE launch over ranks on emulated CTAs, for ctypes.
#include "cta.hpp"

// Shared by a CTA's threads; CTAs run one after the other.
#undef __shared__
#define __shared__ static

struct uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
using std::fabs;
inline float fabsf(float value) { return std::fabs(value); }
inline float fmaxf(float left, float right) { return std::fmax(left, right); }
inline float __uint_as_float(unsigned bits) { return __int_as_float(static_cast<int>(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __syncthreads_or(int agrees) { return !__syncthreads_and(!agrees); }
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int mask) {
    return emulator::exchange(value, (threadIdx.x ^ mask) % emulator::kWarp);
}
inline unsigned __shfl_xor_sync(unsigned mask, unsigned value, unsigned lanes) {
    return __shfl_xor_sync(mask, value, static_cast<int>(lanes));
}
inline float __shfl_xor_sync(unsigned mask, float value, unsigned lanes) {
    return __shfl_xor_sync(mask, value, static_cast<int>(lanes));
}
inline unsigned __shfl_up_sync(unsigned, unsigned value, unsigned distance) {
    const unsigned lane = threadIdx.x % emulator::kWarp;
    return emulator::exchange(value, lane >= distance ? lane - distance : lane);
}
inline unsigned atomicCAS(unsigned* word, unsigned expected, unsigned value) {
    const unsigned before = *word;
    *word = before == expected ? value : before;
    return before;
}

#include "common/timer.cuh"
namespace xstage {
// A loop that looks at the clock lets the others go on, and the time.
inline u64 patient_timer_ns() {
    emulator::wait_until_clock(emulator::cta().clock + 1000000);
    return emulator::cta().clock;
}
}  // namespace xstage
#define global_timer_ns patient_timer_ns

#include "megamoe/routing.cu"

using Kernel = void (*)(const RoutingArguments);

// What went wrong, or null.
static const char* run(Kernel kernel, const void* arguments, unsigned grid, unsigned threads, unsigned seed) {
    const auto& typed = *static_cast<const RoutingArguments*>(arguments);
    for (unsigned block = 0; block < grid; ++block) {
        if (!emulator::run_ctas(block, 1, grid, threads, seed, [&] { kernel(typed); })) {
            return emulator::error().c_str();
        }
    }
    return nullptr;
}

extern "C" const char* run_publish(const void* arguments, unsigned grid, unsigned seed) {
    return run(publish_tokens, arguments, grid, kPublishThreads, seed);
}

// The tables of a launch.
extern "C" const char* run_route(const void* arguments, unsigned grid, unsigned seed) {
    const char* wrong = run(count_rows, arguments, grid, kRoutingThreads, seed);
    wrong = wrong != nullptr ? wrong : run(place_rows, arguments, grid, kRoutingThreads, seed + 1);
    return wrong != nullptr ? wrong : run(list_pulls, arguments, grid, kPublishThreads, seed + 2);
}

extern "C" const char* run_settle(const void* arguments, unsigned grid, unsigned seed) {
    return run(settle, arguments, grid, kPublishThreads, seed);
}
