// Eight floats at a time: what vector_math.h needs of AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

namespace activation::ACTIVATION_ISA {
namespace {
constexpr int kLanes = 8;
}
}  // namespace activation::ACTIVATION_ISA

#include "simd_vectors.h"

namespace activation::ACTIVATION_ISA {
namespace {

inline Pair load_pair(const Float16* p) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

inline void store_pair(Float16* p, const Pair& pair) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  __m128i* halves = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(halves, _mm256_cvtps_ph(pair.first, kNearest));
  _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(pair.second, kNearest));
}

// a * b + c, rounded once.
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

// The larger of two; x where either is NaN.
inline Floats at_least(float bound, Floats x) { return _mm256_max_ps(_mm256_set1_ps(bound), x); }

}  // namespace
}  // namespace activation::ACTIVATION_ISA
