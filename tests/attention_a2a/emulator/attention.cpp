// The attention kernel's own sources on the emulated CTA, for ctypes.
#include "cta.hpp"

#include "attention_a2a/attention.cu"

char shared[emulator::kSharedBytes] __attribute__((aligned(1024)));

// Runs `grid` CTAs one after the other. Returns what went wrong, or null.
extern "C" const char* run_attention(const void* arguments, unsigned grid, unsigned seed) {
    const auto& typed = *static_cast<const AttentionArguments*>(arguments);
    for (unsigned block = 0; block < grid; ++block) {
        std::memset(shared, 0x7f, sizeof shared);  // bf16 NaNs nearly everywhere
        if (!emulator::run_cta(block, grid, kThreads, seed + block, [&] { attention_a2a(typed); })) {
            return emulator::cta().error.c_str();
        }
    }
    return nullptr;
}
