// The loops over memory, and the table of them for one instruction set.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernel_table.h"
#include "vector_math.h"

namespace activation::ACTIVATION_ISA {
namespace {

template <Activation kind>
inline Pair activate_pair(const Pair& x, Floats threshold) {
  return {activate<kind>(x.first, threshold), activate<kind>(x.second, threshold)};
}

inline Pair multiply(const Pair& a, const Pair& b) {
  return {a.first * b.first, a.second * b.second};
}

// The incomplete pair at the end goes through a buffer; its unused lanes compute on zeros.
template <class T>
inline Pair load_rest(const T* p, int64_t count) {
  T buffer[kPair] = {};
  memcpy(buffer, p, count * sizeof(T));
  return load_pair(buffer);
}

template <class T>
inline void store_rest(T* p, const Pair& pair, int64_t count) {
  T buffer[kPair];
  store_pair(buffer, pair);
  memcpy(p, buffer, count * sizeof(T));
}

template <Activation kind, class T>
void unary_span(void* out, const void* x, int64_t count, float threshold) {
  const Floats thresholds = broadcast(threshold);
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  int64_t i = 0;
  for (; i + kPair <= count; i += kPair) {
    store_pair(to + i, activate_pair<kind>(load_pair(from + i), thresholds));
  }
  if (const int64_t rest = count - i; rest > 0) {
    store_rest(to + i, activate_pair<kind>(load_rest(from + i, rest), thresholds), rest);
  }
}

template <Activation kind, class T>
void gated_span(void* out, const void* gate, const void* up, int64_t count, float threshold) {
  const Floats thresholds = broadcast(threshold);
  const T* from = static_cast<const T*>(gate);
  const T* factor = static_cast<const T*>(up);
  T* to = static_cast<T*>(out);
  int64_t i = 0;
  for (; i + kPair <= count; i += kPair) {
    const Pair activated = activate_pair<kind>(load_pair(from + i), thresholds);
    store_pair(to + i, multiply(activated, load_pair(factor + i)));
  }
  if (const int64_t rest = count - i; rest > 0) {
    const Pair activated = activate_pair<kind>(load_rest(from + i, rest), thresholds);
    store_rest(to + i, multiply(activated, load_rest(factor + i, rest)), rest);
  }
}

// One row of the table: the data types in the order of Element.
#define ACTIVATION_SPANS(span, kind) \
  {span<Activation::kind, float>, span<Activation::kind, BFloat16>, span<Activation::kind, Float16>}
// The activations in the order of their enumeration.
#define ACTIVATION_TABLE(span)                                              \
  {ACTIVATION_SPANS(span, kGelu), ACTIVATION_SPANS(span, kGeluTanh),        \
   ACTIVATION_SPANS(span, kGeluQuick), ACTIVATION_SPANS(span, kSilu),       \
   ACTIVATION_SPANS(span, kFatrelu)}
#define ACTIVATION_NAME_OF(isa) #isa
#define ACTIVATION_NAME(isa) ACTIVATION_NAME_OF(isa)

}  // namespace

constexpr KernelTable kKernels = {
    ACTIVATION_NAME(ACTIVATION_ISA), ACTIVATION_TABLE(unary_span), ACTIVATION_TABLE(gated_span)};

}  // namespace activation::ACTIVATION_ISA
