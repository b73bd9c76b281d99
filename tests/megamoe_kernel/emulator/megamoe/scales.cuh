// Emulated: numbers are rounded to the nearest e4m3, ties to even.
#pragma once

#include "common/types.cuh"

namespace xstage::megamoe {

inline u16 to_e4m3(float value) {
    const float size = std::min(std::fabs(value), 448.0f);
    int exponent = 0;
    std::frexp(size, &exponent);
    const float step = std::ldexp(1.0f, std::max(exponent - 4, -9));  // of 3 bits behind the first
    const float rounded = std::nearbyint(size / step) * step;
    u16 bits = 0;
    for (u16 candidate = 0; candidate < 0x7f; ++candidate) {
        const int field = candidate >> 3;
        const float fraction = (candidate & 7) / 8.0f;
        if ((field == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, field - 7)) == rounded) {
            bits = candidate;
        }
    }
    return bits | (std::signbit(value) ? 0x80 : 0);
}

inline u16 pack_e4m3(float low, float high) { return static_cast<u16>(to_e4m3(low) | to_e4m3(high) << 8); }

}  // namespace xstage::megamoe
