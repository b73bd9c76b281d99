// The attention kernel's own sources on emulated CTAs, for ctypes.
#include "cta.hpp"

#include "attention_a2a/attention.cu"

// Runs `grid` CTAs team by team, those of a team side by side. Returns what went wrong, or null.
extern "C" const char* run_attention(const void* arguments, unsigned grid, unsigned seed) {
    const auto& typed = *static_cast<const AttentionArguments*>(arguments);
    for (unsigned block = 0; block < grid; block += kKvSplits) {
        if (!emulator::run_ctas(block, kKvSplits, grid, kThreads, seed, [&] { attention_a2a(typed); })) {
            return emulator::error().c_str();
        }
    }
    return nullptr;
}
