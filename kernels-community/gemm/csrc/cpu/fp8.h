// The two 8-bit floats with four bits of exponent and three of mantissa.
//
// Sources: Micikevicius et al., "FP8 formats for deep learning", 2022 (e4m3fn: bias 7, no infinity,
// NaN is all ones); Noune et al., "8-bit numerical formats for deep neural networks", 2022
// (e4m3fnuz: bias 8, one zero, NaN is the pattern of minus zero).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gemm::cpu {

using Decoder = std::array<float, 256>;

inline Decoder make_decoder(int bias, int nan_magnitude, bool nan_is_minus_zero) {
  Decoder values{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), 1 - bias - 3)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - bias - 3);
    const bool is_nan = nan_is_minus_zero ? bits == 0x80 : (bits & 0x7f) == nan_magnitude;
    values[bits] = is_nan ? std::numeric_limits<float>::quiet_NaN()
                          : (bits & 0x80 ? -magnitude : magnitude);
  }
  return values;
}

inline const Decoder& decode_e4m3fn() {
  static const Decoder values = make_decoder(7, 0x7f, false);
  return values;
}

inline const Decoder& decode_e4m3fnuz() {
  static const Decoder values = make_decoder(8, 0, true);
  return values;
}

}  // namespace gemm::cpu
