// What grey is: the weights, and the arithmetic that every backend must hit bit by bit.
//
// uint8: the integer part of the exact sum wr R + wg G + wb B. It is computed as
//   (ceil(wr 2^24) R + ceil(wg 2^24) G + ceil(wb 2^24) B) >> 24,
// which is too large by less than 3 * 255 / 2^24 < 1 / 10000 before the cut. The exact sum has at
// most four decimals, so it never lies that close below a whole number: the result is exact.
// The weights sum to 1, so the total stays below 2^32.
//
// Floating point: ((wr R) + (wg G)) + (wb B) with a rounding after every step, in float (also for
// the 16-bit types, which are rounded once at the end) or in double.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define IMG2GRAY_FUNCTION __host__ __device__ inline
#else
#define IMG2GRAY_FUNCTION inline
#endif

namespace img2gray {

struct Weights {
  double red;
  double green;
  double blue;
};

constexpr Weights kDefaultWeights = {0.21, 0.72, 0.07};
constexpr Weights kBt601Weights = {0.299, 0.587, 0.114};      // ITU-R BT.601, luma
constexpr Weights kBt709Weights = {0.2126, 0.7152, 0.0722};  // ITU-R BT.709, luma

struct FixedWeights {
  uint32_t red;
  uint32_t green;
  uint32_t blue;
};
constexpr int kFractionBits = 24;

constexpr uint32_t round_up_to_fixed(double weight) {
  const double scaled = weight * (1 << kFractionBits);
  const auto whole = static_cast<uint32_t>(scaled);
  return whole < scaled ? whole + 1 : whole;
}

constexpr FixedWeights to_fixed(const Weights& weights) {
  return {
      round_up_to_fixed(weights.red), round_up_to_fixed(weights.green),
      round_up_to_fixed(weights.blue)};
}

IMG2GRAY_FUNCTION uint8_t gray_of(const FixedWeights& w, uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint8_t>((w.red * red + w.green * green + w.blue * blue) >> kFractionBits);
}

// The device's intrinsics are those that nvcc does not fuse; on the host a flag of the build
// forbids it.
template <class Real>
IMG2GRAY_FUNCTION Real multiply(Real a, Real b) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Real) == sizeof(float)) return __fmul_rn(a, b);
  else return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// `w` has the weights as numbers of any kind; each is rounded to Real.
template <class AnyWeights, class Real>
IMG2GRAY_FUNCTION Real gray_of(const AnyWeights& w, Real red, Real green, Real blue) {
  return multiply(static_cast<Real>(w.red), red) + multiply(static_cast<Real>(w.green), green) +
         multiply(static_cast<Real>(w.blue), blue);
}

}  // namespace img2gray
