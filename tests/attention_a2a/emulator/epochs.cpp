// The kernels beside the attention on emulated CTAs, for ctypes.
#include "cta.hpp"

#include "attention_a2a/epochs.cu"

// Each returns what went wrong, or null.
extern "C" const char* run_receive(const void* arguments, unsigned grid, unsigned seed) {
    const auto& typed = *static_cast<const ReceiveArguments*>(arguments);
    for (unsigned block = 0; block < grid; ++block) {
        if (!emulator::run_ctas(block, 1, grid, kReceiveThreads, seed, [&] { receive_epoch(typed); })) {
            return emulator::error().c_str();
        }
    }
    return nullptr;
}

extern "C" const char* run_signal(const void* arguments) {
    const auto& typed = *static_cast<const AttentionArguments*>(arguments);
    return emulator::run_ctas(0, 1, 1, 1, 0, [&] { signal_epoch(typed); }) ? nullptr : emulator::error().c_str();
}
