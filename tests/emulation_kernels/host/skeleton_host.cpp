// The skeleton on a CPU: its kernel, one process for each CTA.
#include "cuda.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "emulation/skeleton.cu"

using namespace xstage;

namespace {

constexpr u32 kSharedBytes = 256 << 10;
alignas(128) char shared_memory[kSharedBytes];
pthread_barrier_t all_threads;
pthread_barrier_t issue_threads;
std::atomic<u32> ones{0};
u32 sm = 0;

long futex(const void* word, int operation, u32 value, const timespec* timeout) {
    return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

void run_cta(const SkeletonArguments& arguments, u32 id) {
    sm = id;
    pthread_barrier_init(&all_threads, nullptr, kThreads);
    pthread_barrier_init(&issue_threads, nullptr, kIssueThreads);
    std::vector<std::thread> threads;
    for (u32 thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&arguments, thread] {
            threadIdx.x = thread;
            skeleton(arguments);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace

thread_local ThreadIndex threadIdx;

void __syncthreads() { pthread_barrier_wait(&all_threads); }

namespace xstage {

u32 sm_id() { return sm; }

void Mbarrier::wait_a_while(u32 parity) const {
    const u32 phase = phase_.load();
    if ((phase & 1) == parity) {
        const timespec while_ns = {0, 2'000'000};
        futex(&phase_, FUTEX_WAIT_PRIVATE, phase, &while_ns);
    }
}

void Mbarrier::wake() { futex(&phase_, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr); }

}  // namespace xstage

namespace xstage::emulation {

char* dynamic_shared_memory() { return shared_memory; }

bool any_is_ones_of(u32, u32 value) {
    ones.fetch_add(value == ~0u ? 1 : 0);
    pthread_barrier_wait(&issue_threads);
    const bool any = ones.load() != 0;
    if (pthread_barrier_wait(&issue_threads) == PTHREAD_BARRIER_SERIAL_THREAD) {
        ones.store(0);
    }
    pthread_barrier_wait(&issue_threads);
    return any;
}

}  // namespace xstage::emulation

// Runs `ctas` CTAs on SMs 0 to ctas - 1; returns how many ended badly.
extern "C" u32 run_grid(const SkeletonArguments* arguments, u32 ctas) {
    std::vector<pid_t> children;
    for (u32 cta = 0; cta < ctas; ++cta) {
        const pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(60);  // a CTA that hangs ends all the same
            run_cta(*arguments, cta);
            _exit(0);
        }
        children.push_back(child);
    }
    u32 bad = 0;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        bad += status != 0 ? 1 : 0;
    }
    return bad;
}
