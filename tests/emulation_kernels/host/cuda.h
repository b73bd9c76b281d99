// Just enough of CUDA to run kernels on a CPU: a CTA is a process, its threads are threads, so that a static is
// shared memory and what was mapped before the fork is global memory.
#pragma once

#include <pthread.h>

#include <algorithm>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

using std::max;
using std::min;

struct uint4 {
    unsigned x, y, z, w;
};

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct ThreadIndex {
    unsigned x;
};

extern thread_local ThreadIndex threadIdx;

void __syncthreads();

template <typename Value>
Value atomicAdd(Value* address, Value value) {
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

inline unsigned atomicAdd(unsigned* address, int value) {
    return __atomic_fetch_add(address, static_cast<unsigned>(value), __ATOMIC_SEQ_CST);
}

template <typename Value>
Value atomicExch(Value* address, Value value) {
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
}

template <typename Value>
Value atomicCAS(Value* address, Value expected, Value value) {
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
