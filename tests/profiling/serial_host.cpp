// The serial All-to-All's kernels on the emulated CTA of the attention kernel's tests, for ctypes.
#include "cta.hpp"

#include "attention_a2a/serial.cu"

template <typename Kernel>
static const char* run(const void* arguments, unsigned grid, const Kernel& kernel) {
    const auto& typed = *static_cast<const SerialArguments*>(arguments);
    for (unsigned block = 0; block < grid; ++block) {
        if (!emulator::run_ctas(block, 1, grid, kSerialThreads, 0, [&] { kernel(typed); })) {
            return emulator::error().c_str();
        }
    }
    return nullptr;
}

extern "C" const char* run_store_to_ranks(const void* arguments, unsigned grid) {
    return run(arguments, grid, store_to_ranks);
}

extern "C" const char* run_permute_received(const void* arguments, unsigned grid) {
    return run(arguments, grid, permute_received);
}
