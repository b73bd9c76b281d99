// Runs the threads of one CTA on the CPU, as fibers: enough of a GPU to run the attention kernel's own sources.
//
// The headers beside this one replace those of kernels/common that wrap single instructions. What is asynchronous on
// the GPU happens here at a moment that a seed chooses, between its issue and the wait for it, and runnable threads
// are taken in random order: a buffer that is reused too early gives wrong results, and threads that wait for each
// other are reported. It says nothing of speed, of memory fences, or of what the compiler does.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define threadIdx (emulator::cta().current->index)
#define blockIdx (emulator::cta().block)
#define gridDim (emulator::cta().grid)

struct uint4 {
    unsigned x, y, z, w;
};
struct Index {
    unsigned x;
};
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline float __int_as_float(int bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

namespace emulator {

constexpr unsigned kSharedBytes = 232448;
constexpr unsigned kWarp = 32;
constexpr unsigned kStackBytes = 128 << 10;

// Work of the copy engine or the tensor cores, done at the latest when somebody must have it.
struct Task {
    std::function<void()> work;
    bool slow = false;
    bool done = false;

    void run() {
        if (!done) {
            done = true;
            work();
        }
    }
};
using TaskPointer = std::shared_ptr<Task>;
using Group = std::vector<TaskPointer>;

struct Rendezvous {
    unsigned arrived = 0;
    unsigned generation = 0;

    void arrive(unsigned expected) {
        if (++arrived == expected) {
            arrived = 0;
            ++generation;
        }
    }
};

struct Thread {
    Index index;
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(kStackBytes);
    std::function<bool()> runnable;  // empty: always
    bool finished = false;
    std::vector<Group> products;  // committed, oldest first
    Group open_products;
    std::vector<Group> copies;
    Group open_copies;
    std::vector<std::array<unsigned, 4>> operands;  // register operands of all products so far
};

struct Warp {
    Rendezvous meeting;
    std::array<unsigned, kWarp> exchanged;
};

struct Cta {
    Index block{0}, grid{1};
    Thread* current = nullptr;
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<Warp> warps;
    std::array<Rendezvous, 16> barriers;
    std::vector<TaskPointer> engine;  // copies under way
    std::mt19937 random;
    unsigned long long clock = 0;
    std::string error;
    ucontext_t scheduler;
    std::function<void()> kernel;
};

inline Cta& cta() {
    static Cta instance;
    return instance;
}

inline void fail(const std::string& error) {
    if (cta().error.empty()) {
        cta().error = error;
    }
}

inline bool chance(unsigned percent) { return cta().random() % 100 < percent; }

// Gives the other threads a turn until `condition` holds.
inline void wait_until(std::function<bool()> condition) {
    Thread* self = cta().current;
    self->runnable = std::move(condition);
    swapcontext(&self->context, &cta().scheduler);
    self->runnable = nullptr;
}

// Lets the others go ahead by some rounds, or not.
inline void dawdle() {
    if (chance(50)) {
        const unsigned long long until = cta().clock + 100 * (cta().random() % 8);
        wait_until([until] { return cta().clock >= until; });
    }
}

inline void rendezvous(Rendezvous& meeting, unsigned expected) {
    const unsigned generation = meeting.generation;
    meeting.arrive(expected);
    wait_until([&meeting, generation] { return meeting.generation != generation; });
}

inline Warp& warp() { return cta().warps[threadIdx.x / kWarp]; }

inline void meet_warp() { rendezvous(warp().meeting, kWarp); }

inline unsigned exchange(unsigned value, unsigned from_lane) {
    warp().exchanged[threadIdx.x % kWarp] = value;
    meet_warp();
    const unsigned received = warp().exchanged[from_lane];
    meet_warp();
    return received;
}

inline void run_groups(std::vector<Group>& groups, unsigned but) {
    while (groups.size() > but) {
        for (const TaskPointer& task : groups.front()) {
            task->run();
        }
        groups.erase(groups.begin());
    }
}

inline void enter_thread() {
    cta().kernel();
    cta().current->finished = true;
    swapcontext(&cta().current->context, &cta().scheduler);
}

// Begins a copy: one in four takes as long as it can.
inline TaskPointer start_copy(std::function<void()> work) {
    auto task = std::make_shared<Task>();
    task->work = std::move(work);
    task->slow = chance(25);
    cta().engine.push_back(task);
    return task;
}

// Lets copies finish in any order. Where no thread can go on, the quick ones all do, and after that one slow one a
// round, the latest begun first: a store then outlasts many loads. Says whether one did.
inline bool advance_engine(unsigned idle_rounds) {
    std::vector<TaskPointer>& engine = cta().engine;
    bool advanced = false;
    for (unsigned i = static_cast<unsigned>(engine.size()); i-- > 0;) {
        const bool quick = !engine[i]->slow && (idle_rounds > 0 || chance(20));
        if (engine[i]->done || quick || (idle_rounds > 1 && !advanced)) {
            engine[i]->run();
            engine.erase(engine.begin() + i);
            advanced = true;
        }
    }
    return advanced;
}

// One CTA from its first to its last thread. False, with `error`, if its threads wait for each other or do what the
// GPU refuses.
inline bool run_cta(unsigned block, unsigned grid, unsigned threads, unsigned seed, std::function<void()> kernel) {
    Cta& self = cta();
    self = Cta();
    self.block.x = block;
    self.grid.x = grid;
    self.random.seed(seed);
    self.kernel = std::move(kernel);
    self.warps.resize(threads / kWarp);
    for (unsigned i = 0; i < threads; ++i) {
        self.threads.push_back(std::make_unique<Thread>());
        Thread& thread = *self.threads.back();
        thread.index.x = i;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.data();
        thread.context.uc_stack.ss_size = thread.stack.size();
        makecontext(&thread.context, enter_thread, 0);
    }
    std::vector<Thread*> order;
    for (auto& thread : self.threads) {
        order.push_back(thread.get());
    }
    for (unsigned idle_rounds = 0; !order.empty() && self.error.empty();) {
        bool advanced = advance_engine(idle_rounds);
        // Warps in random order, and now and then threads.
        std::rotate(order.begin(), order.begin() + self.random() % order.size(), order.end());
        for (Thread* thread : order) {
            if (!thread->runnable || thread->runnable()) {
                self.current = thread;
                swapcontext(&self.scheduler, &thread->context);
                advanced = true;
            }
        }
        self.clock += 100;
        order.erase(std::remove_if(order.begin(), order.end(), [](Thread* thread) { return thread->finished; }),
                    order.end());
        idle_rounds = advanced ? 0 : idle_rounds + 1;
        if (idle_rounds > 100000) {
            fail("deadlock: " + std::to_string(order.size()) + " threads wait, the first is thread " +
                 std::to_string(order.front()->index.x) + " of CTA " + std::to_string(block));
        }
    }
    if (self.error.empty() && !self.engine.empty()) {
        for (const TaskPointer& task : self.engine) {
            if (!task->done) {
                fail("the CTA ended while a copy was under way");
            }
        }
    }
    return self.error.empty();
}

}  // namespace emulator

inline void __syncthreads() { emulator::rendezvous(emulator::cta().barriers[0], emulator::cta().threads.size()); }
inline void __syncwarp() {
    emulator::meet_warp();
    emulator::dawdle();
}
inline float __shfl_xor_sync(unsigned, float value, int mask) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    bits = emulator::exchange(bits, (threadIdx.x ^ mask) % emulator::kWarp);
    return __int_as_float(static_cast<int>(bits));
}
