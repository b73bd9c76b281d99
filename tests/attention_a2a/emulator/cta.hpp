// Runs the threads of CTAs on the CPU, as fibers: enough of a GPU to run the attention kernel's own sources.
//
// The headers beside this one replace those of kernels/common that wrap single instructions. What is asynchronous on
// the GPU happens here at a moment that a seed chooses, between its issue and the wait for it, and runnable threads
// are taken in random order: a buffer that is reused too early gives wrong results, and threads that wait for each
// other are reported. It says nothing of speed, of memory fences, or of what the compiler does.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
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
#define __cluster_dims__(...)
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
constexpr unsigned long long kNever = std::numeric_limits<unsigned long long>::max();

}  // namespace emulator

// Shared memory of the CTA that runs.
alignas(1024) inline char shared[emulator::kSharedBytes];

namespace emulator {

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
    ucontext_t start;
    bool started = false;
    jmp_buf place;  // where it goes on; swapcontext would do, but makes two system calls each time
    std::vector<char> stack = std::vector<char>(kStackBytes);
    std::function<bool()> runnable;  // empty: always
    unsigned long long deadline = kNever;  // of the clock, if it waits for that
    bool finished = false;
    bool strayed = false;  // may be ahead of its warp or behind, until the warp meets
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
    unsigned refusals = 0;  // in a vote of all threads
    std::vector<TaskPointer> engine;  // copies under way
    std::mt19937 random;
    unsigned long long clock = 0;
    jmp_buf scheduler;
    std::function<void()> kernel;
    std::vector<Thread*> order;  // that have not finished
    std::vector<char> shared = std::vector<char>(kSharedBytes, 0x7f);  // bf16 NaNs nearly everywhere
    std::vector<Cta>* cluster = nullptr;
};

// The CTA whose threads run.
inline Cta*& active() {
    static Cta* pointer;
    return pointer;
}
inline Cta& cta() { return *active(); }

// The CTA whose shared memory `::shared` is; that of the others lies in theirs.
inline Cta*& in_place() {
    static Cta* pointer;
    return pointer;
}

inline const char* shared_memory() { return &cta() == in_place() ? ::shared : cta().shared.data(); }

inline void put_in_place() {
    if (&cta() == in_place()) {
        return;
    }
    if (in_place() != nullptr) {
        std::memcpy(in_place()->shared.data(), ::shared, kSharedBytes);
    }
    std::memcpy(::shared, cta().shared.data(), kSharedBytes);
    in_place() = &cta();
}

// At which the threads of all CTAs of the cluster meet.
inline Rendezvous& cluster_meeting() {
    static Rendezvous meeting;
    return meeting;
}

inline std::string& error() {
    static std::string text;
    return text;
}

inline void fail(const std::string& text) {
    if (error().empty()) {
        error() = text;
    }
}

inline bool chance(unsigned percent) { return cta().random() % 100 < percent; }

// Gives the other threads a turn until `condition` holds.
inline void wait_until(std::function<bool()> condition) {
    Thread* self = cta().current;
    self->runnable = std::move(condition);
    if (_setjmp(self->place) == 0) {
        _longjmp(cta().scheduler, 1);
    }
    cta().current->runnable = nullptr;
}

inline void wait_until_clock(unsigned long long deadline) {
    cta().current->deadline = deadline;
    wait_until([deadline] { return cta().clock >= deadline; });
    cta().current->deadline = kNever;
}

// Lets the others go ahead by some rounds, or not.
inline void dawdle() {
    if (chance(50)) {
        wait_until_clock(cta().clock + 100 * (cta().random() % 8));
    }
}

inline void rendezvous(Rendezvous& meeting, unsigned expected) {
    const unsigned generation = meeting.generation;
    meeting.arrive(expected);
    wait_until([&meeting, generation] { return meeting.generation != generation; });
}

inline Warp& warp() { return cta().warps[threadIdx.x / kWarp]; }

inline void meet_warp() {
    rendezvous(warp().meeting, kWarp);
    cta().current->strayed = false;
}

// What is `.aligned` asks for all lanes of a warp at once.
inline void require_aligned_warp() {
    if (cta().current->strayed) {
        fail("an aligned instruction behind lanes' own branches, where the warp has not met");
    }
}

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
    _longjmp(cta().scheduler, 1);
}

// Runs a thread up to its next wait, or to its end.
inline void resume(Thread& thread) {
    put_in_place();
    cta().current = &thread;
    if (_setjmp(cta().scheduler) != 0) {
        return;
    }
    if (thread.started) {
        _longjmp(thread.place, 1);
    }
    thread.started = true;
    setcontext(&thread.start);
}

// Begins a copy: one in four takes as long as it can.
inline TaskPointer start_copy(std::function<void()> work, Cta& destination = cta()) {
    auto task = std::make_shared<Task>();
    task->work = std::move(work);
    task->slow = chance(25);
    if (destination.order.empty()) {
        fail("a store or an arrival at a CTA that has ended");
    }
    destination.engine.push_back(task);
    return task;
}

inline void start_in_cta(unsigned rank, std::function<void()> work) {
    start_copy(std::move(work), (*cta().cluster)[rank]);
}

inline void meet_cluster() {
    rendezvous(cluster_meeting(), static_cast<unsigned>(cta().cluster->size() * cta().threads.size()));
}

// Lets copies finish in any order. Where no thread can go on, the quick ones all do, and after that one slow one a
// round, the latest begun first: a store then outlasts many loads. Says whether one did.
inline bool advance_engine(unsigned idle_rounds) {
    std::vector<TaskPointer>& engine = cta().engine;
    bool advanced = false;
    for (unsigned i = static_cast<unsigned>(engine.size()); i-- > 0;) {
        const bool quick = !engine[i]->slow && (idle_rounds > 0 || chance(20));
        if (engine[i]->done || quick || (idle_rounds > 1 && !advanced)) {
            put_in_place();
            engine[i]->run();
            engine.erase(engine.begin() + i);
            advanced = true;
        }
    }
    return advanced;
}

inline void begin_cta(Cta& self, unsigned block, unsigned grid, unsigned threads, unsigned seed,
                      const std::function<void()>& kernel) {
    self.block.x = block;
    self.grid.x = grid;
    self.random.seed(seed);
    self.kernel = kernel;
    self.warps.resize(threads / kWarp);
    for (unsigned i = 0; i < threads; ++i) {
        self.threads.push_back(std::make_unique<Thread>());
        Thread& thread = *self.threads.back();
        thread.index.x = i;
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.data();
        thread.start.uc_stack.ss_size = thread.stack.size();
        makecontext(&thread.start, enter_thread, 0);
        self.order.push_back(&thread);
    }
}

// Gives every thread that can go on a turn; says whether anything happened.
inline bool run_round(Cta& self, unsigned idle_rounds) {
    bool advanced = advance_engine(idle_rounds);
    // Warps in random order, and now and then threads.
    std::vector<Thread*>& order = self.order;
    std::rotate(order.begin(), order.begin() + self.random() % order.size(), order.end());
    for (Thread* thread : order) {
        if (!thread->runnable || thread->runnable()) {
            resume(*thread);
            advanced = true;
        }
    }
    self.clock += 100;
    order.erase(std::remove_if(order.begin(), order.end(), [](Thread* thread) { return thread->finished; }),
                order.end());
    if (order.empty() && std::any_of(self.engine.begin(), self.engine.end(), [](auto& task) { return !task->done; })) {
        fail("the CTA ended while a copy was under way");
    }
    return advanced;
}

// Where nobody can go on and no copy is under way, lets the time pass by up to the first moment that one waits for.
inline void pass_time(std::vector<Cta>& team) {
    unsigned long long left = kNever;
    for (const Cta& self : team) {
        if (!self.engine.empty()) {
            return;
        }
        for (const Thread* thread : self.order) {
            if (thread->deadline != kNever) {
                left = std::min(left, std::max(thread->deadline, self.clock) - self.clock);
            }
        }
    }
    for (Cta& self : team) {
        self.clock += left == kNever ? 0 : left;
    }
}

// `count` CTAs side by side, from `first` on, to their last threads.
// False, with `error`, if threads wait for each other or do what the GPU refuses.
inline bool run_ctas(unsigned first, unsigned count, unsigned grid, unsigned threads, unsigned seed,
                     const std::function<void()>& kernel) {
    std::vector<Cta> team(count);
    for (unsigned i = 0; i < count; ++i) {
        begin_cta(team[i], first + i, grid, threads, seed + first + i, kernel);
        team[i].cluster = &team;
    }
    cluster_meeting() = {};
    error().clear();
    in_place() = nullptr;
    unsigned unfinished = count;
    for (unsigned idle_rounds = 0; unfinished > 0 && error().empty();) {
        bool advanced = false;
        unfinished = 0;
        for (Cta& self : team) {
            if (self.order.empty() || !error().empty()) {
                continue;
            }
            active() = &self;
            // Some rounds at a stretch, so that one is ahead of the others.
            bool moved = true;
            for (unsigned rounds = 1 + self.random() % 16; moved && rounds > 0 && !self.order.empty(); --rounds) {
                moved = run_round(self, advanced ? 0 : idle_rounds);
                advanced = moved || advanced;
            }
            unfinished += !self.order.empty();
        }
        if (!advanced) {
            pass_time(team);
        }
        idle_rounds = advanced ? 0 : idle_rounds + 1;
        if (idle_rounds > 10000) {
            fail("deadlock: in CTA " + std::to_string(cta().block.x) + " " + std::to_string(cta().order.size()) +
                 " threads wait");
        }
    }
    return error().empty();
}

}  // namespace emulator

inline void __syncthreads() { emulator::rendezvous(emulator::cta().barriers[0], emulator::cta().threads.size()); }
inline int __syncthreads_and(int agrees) {
    emulator::cta().refusals += agrees == 0;
    __syncthreads();
    const int all = emulator::cta().refusals == 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        emulator::cta().refusals = 0;
    }
    __syncthreads();
    return all;
}
inline unsigned __ballot_sync(unsigned, int agrees) {
    unsigned votes = 0;
    emulator::warp().exchanged[threadIdx.x % emulator::kWarp] = agrees != 0;
    emulator::meet_warp();
    for (unsigned lane = 0; lane < emulator::kWarp; ++lane) {
        votes |= emulator::warp().exchanged[lane] << lane;
    }
    emulator::meet_warp();
    return votes;
}
inline int __ffs(int value) { return __builtin_ffs(value); }
inline float __fmul_rn(float left, float right) {
    volatile float product = left * right;  // not fused with what follows
    return product;
}
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
