// Variants of the activations' streaming kernel for float16: threads in a block, loads in flight a
// thread, cache hints. Compiled and timed by gpu_tune_activation.py, which writes the table of them.
#include <cstdint>

#include "cuda/device_math.cuh"

using namespace activation;
using namespace activation::cuda;

constexpr int kPack = 8;

struct alignas(16) Pack {
  __half values[kPack];
};

enum Hint { kNone, kEvictFirst, kNoL1, kNoL1EvictFirst };

template <Hint hint>
__device__ Pack load(const Pack* p) {
  int4 v;
  if constexpr (hint == kNone) {
    v = *reinterpret_cast<const int4*>(p);
  } else if constexpr (hint == kEvictFirst) {
    v = __ldcs(reinterpret_cast<const int4*>(p));
  } else {
    asm volatile("ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  }
  return *reinterpret_cast<Pack*>(&v);
}

template <Hint hint>
__device__ void store(Pack* p, const Pack& pack) {
  const int4 v = *reinterpret_cast<const int4*>(&pack);
  if constexpr (hint == kEvictFirst || hint == kNoL1EvictFirst) {
    __stcs(reinterpret_cast<int4*>(p), v);
  } else {
    *reinterpret_cast<int4*>(p) = v;
  }
}

// `count` packs of output; the input's rows have `row` packs, or twice as many if gated.
template <Activation kind, bool gated, int threads, int depth, Hint hint>
__global__ void __launch_bounds__(threads)
    stream(Pack* out, const Pack* in, uint32_t count, uint32_t row) {
  const uint32_t first = blockIdx.x * (threads * depth) + threadIdx.x;
  Pack gates[depth];
  Pack ups[depth];
#pragma unroll
  for (int d = 0; d < depth; ++d) {
    const uint32_t i = first + d * threads;
    if (i >= count) break;
    const uint32_t at = gated ? i + i / row * row : i;
    gates[d] = load<hint>(in + at);
    if constexpr (gated) ups[d] = load<hint>(in + at + row);
  }
#pragma unroll
  for (int d = 0; d < depth; ++d) {
    const uint32_t i = first + d * threads;
    if (i >= count) break;
    Pack result;
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      float value = activate<kind, __half>(to_float(gates[d].values[e]), 0.0f);
      if constexpr (gated) value *= to_float(ups[d].values[e]);
      assign(result.values[e], value);
    }
    store<hint>(out + i, result);
  }
}

template <Activation kind, bool gated, int threads, int depth, Hint hint>
int run(void* out, const void* in, uint32_t count, uint32_t row, cudaStream_t on) {
  constexpr uint32_t kBlock = threads * depth;
  stream<kind, gated, threads, depth, hint><<<(count + kBlock - 1) / kBlock, threads, 0, on>>>(
      static_cast<Pack*>(out), static_cast<const Pack*>(in), count, row);
  return static_cast<int>(cudaGetLastError());
}

// Returns a cudaError_t, or -1 for a number without a variant.
extern "C" int run_variant(
    int number, void* out, const void* in, uint32_t count, uint32_t row, void* on) {
  const auto stream = static_cast<cudaStream_t>(on);
  switch (number) {
#define VARIANT(number, kind, gated, threads, depth, hint) \
  case number:                                             \
    return run<Activation::kind, gated, threads, depth, hint>(out, in, count, row, stream);
#include "activation_variants.inc"
  }
  return -1;
}
