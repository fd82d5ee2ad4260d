// Vectors of kLanes floats, and how the three data types come in from memory and go back.
//
// The types are GCC's portable vectors: comparisons give masks of 0 and -1, `mask ? a : b` selects
// lane by lane, a cast keeps the bits. Each instruction set includes this in its own namespace.
#pragma once

#include <stdint.h>
#include <string.h>

namespace activation::ACTIVATION_ISA {
namespace {

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// 2 * kLanes consecutive elements of memory, dealt to two vectors in an order that suits the type.
// What happens between load and store is element by element, so the order does not matter.
constexpr int kPair = 2 * kLanes;
struct Pair {
  Floats first;
  Floats second;
};

template <class Vector>
inline Vector load_vector(const void* p) {
  Vector vector;
  memcpy(&vector, p, sizeof vector);
  return vector;
}
template <class Vector>
inline void store_vector(void* p, Vector vector) {
  memcpy(p, &vector, sizeof vector);
}

inline Pair load_pair(const float* p) {
  return {load_vector<Floats>(p), load_vector<Floats>(p + kLanes)};
}
inline void store_pair(float* p, const Pair& pair) {
  store_vector(p, pair.first);
  store_vector(p + kLanes, pair.second);
}

// Two 16-bit elements lie in each 32-bit lane (the lower one first: all our targets are little
// endian), so splitting them needs no shuffle. A bfloat16 is the upper half of a float.
inline Pair load_pair(const BFloat16* p) {
  const Bits lanes = load_vector<Bits>(p);
  return {(Floats)(lanes << 16), (Floats)(lanes & 0xffff0000u)};
}

// Adds so much that cutting the lower half off rounds to the nearest bfloat16, ties to even.
// It would turn a NaN with a full lower half into a zero. There is none: NaN come out of arithmetic
// with the bits of a NaN that went in, a bfloat16 whose lower half is 0, or as the default NaN.
inline Bits round_upper_half(Floats x) {
  const Bits bits = (Bits)x;
  return bits + 0x7fffu + ((bits >> 16) & 1u);
}
inline void store_pair(BFloat16* p, const Pair& pair) {
  const Bits lower = round_upper_half(pair.first) >> 16;
  const Bits upper = round_upper_half(pair.second) & 0xffff0000u;
  store_vector(p, lower | upper);
}

}  // namespace
}  // namespace activation::ACTIVATION_ISA
