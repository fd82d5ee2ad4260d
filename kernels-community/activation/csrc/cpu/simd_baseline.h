// Four floats at a time, without intrinsics: what vector_math.h needs on any processor.
#pragma once

namespace activation::ACTIVATION_ISA {
namespace {
constexpr int kLanes = 4;
}
}  // namespace activation::ACTIVATION_ISA

#include "simd_vectors.h"

namespace activation::ACTIVATION_ISA {
namespace {

// The exponents of the two formats: 5 bits with bias 15, and 8 bits with bias 127.
constexpr uint32_t kRebias = (127 - 15) << 23;

// The float that the low 16 bits of each lane spell as an IEEE half; the rest of the lane is 0.
inline Floats widen_float16(Bits half) {
  const Bits magnitude = (half & 0x7fffu) << 13;
  const Bits exponent = magnitude & (0x1fu << 23);
  const Bits normal = magnitude + kRebias;
  // Infinity and NaN have the largest exponent in both formats.
  const Bits special = normal + kRebias;
  // A denormal counts 2^-24: make it an addend to 2^-14, and take that away again.
  const Floats denormal = (Floats)(normal + (1u << 23)) - 0x1p-14f;
  const Bits value = (exponent == 0x1fu << 23) ? special
                     : (exponent == 0u)        ? (Bits)denormal
                                               : normal;
  return (Floats)(value | (half & 0x8000u) << 16);
}

// The IEEE half nearest to each float, ties to even, in the low 16 bits of its lane.
inline Bits narrow_to_float16(Floats x) {
  const Bits bits = (Bits)x;
  const Ints magnitude = (Ints)(bits & 0x7fffffffu);
  // Round the last 13 bits away; a carry may reach the exponent, as it should, up to infinity.
  const Bits last_kept = ((Bits)magnitude >> 13) & 1u;
  const Bits normal = ((Bits)magnitude - kRebias + 0xfffu + last_kept) >> 13;
  // Below 2^-14: the last bit of a sum with 1/2 counts 2^-24, so the addition does the rounding.
  const Bits denormal = (Bits)((Floats)magnitude + 0.5f) - (126u << 23);
  const Bits infinity = Bits{} + 0x7c00u;
  const Bits half = (x != x)                    ? infinity + 0x200u
                    : (magnitude >= 143 << 23) ? infinity
                    : (magnitude < 113 << 23)  ? denormal
                                                : normal;
  return half | (bits >> 16 & 0x8000u);
}

inline Pair load_pair(const Float16* p) {
  const Bits lanes = load_vector<Bits>(p);
  return {widen_float16(lanes & 0xffffu), widen_float16(lanes >> 16)};
}

inline void store_pair(Float16* p, const Pair& pair) {
  store_vector(p, narrow_to_float16(pair.first) | narrow_to_float16(pair.second) << 16);
}

// a * b + c, in two roundings where the processor has no fused operation.
inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }

// The larger of two; x where either is NaN.
inline Floats at_least(float bound, Floats x) { return (bound > x) ? Floats{} + bound : x; }

}  // namespace
}  // namespace activation::ACTIVATION_ISA
