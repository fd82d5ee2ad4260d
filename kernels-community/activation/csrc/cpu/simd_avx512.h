// Sixteen floats at a time: what vector_math.h needs of AVX-512.
#pragma once

#include <immintrin.h>

namespace activation::ACTIVATION_ISA {
namespace {
constexpr int kLanes = 16;
}
}  // namespace activation::ACTIVATION_ISA

#include "simd_vectors.h"

namespace activation::ACTIVATION_ISA {
namespace {

inline Pair load_pair(const Float16* p) {
  const __m256i* halves = reinterpret_cast<const __m256i*>(p);
  return {
      _mm512_cvtph_ps(_mm256_loadu_si256(halves)), _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1))};
}

inline void store_pair(Float16* p, const Pair& pair) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  __m256i* halves = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(halves, _mm512_cvtps_ph(pair.first, kNearest));
  _mm256_storeu_si256(halves + 1, _mm512_cvtps_ph(pair.second, kNearest));
}

// a * b + c, rounded once.
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

// The larger of two; x where either is NaN.
inline Floats at_least(float bound, Floats x) { return _mm512_max_ps(_mm512_set1_ps(bound), x); }

}  // namespace
}  // namespace activation::ACTIVATION_ISA
