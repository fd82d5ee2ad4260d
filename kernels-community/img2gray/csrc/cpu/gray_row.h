// The fast way through a row of uint8 pixels, where the processor has one.
//
// The unit behind it is compiled for processors that this machine may not have; so this header,
// which it includes, brings nothing of the C++ library along.
#pragma once

#include <stdint.h>

#include "../gray_formula.h"

namespace img2gray::avx2 {

// Both convert as many of the `count` pixels as fill whole vectors, and return how many.
int64_t gray_interleaved(
    uint8_t* out, const uint8_t* pixels, int64_t count, const FixedWeights& weights);
int64_t gray_planar(
    uint8_t* out, const uint8_t* red, const uint8_t* green, const uint8_t* blue, int64_t count,
    const FixedWeights& weights);

}  // namespace img2gray::avx2
