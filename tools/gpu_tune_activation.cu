// Variants of the activations' streaming kernel for float16: threads in a block, loads in flight a
// thread, elements a load, cache hints. Compiled and timed by gpu_tune_activation.py, which writes the table of them.
#include <cstdint>

#include "cuda/stream.cuh"

using activation::Activation;
using activation::cuda::activate;
using activation::cuda::assign;
using activation::cuda::Divider;
using activation::cuda::to_float;

namespace {

template <int pack>
struct alignas(sizeof(__half) * pack) Pack {
  __half values[pack];
};

enum Hint { kNone, kEvictFirst, kNoL1, kNoL1EvictFirst };

// The hints are for whole packs of 16 bytes.
template <Hint hint, int pack>
__device__ Pack<pack> load(const Pack<pack>* p) {
  if constexpr (hint == kNone) {
    return *p;
  } else {
    static_assert(sizeof(Pack<pack>) == sizeof(int4));
    int4 v;
    if constexpr (hint == kEvictFirst) {
      v = __ldcs(reinterpret_cast<const int4*>(p));
    } else {
      asm volatile("ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(p));
    }
    return *reinterpret_cast<Pack<pack>*>(&v);
  }
}

template <Hint hint, int pack>
__device__ void store(Pack<pack>* p, const Pack<pack>& values) {
  if constexpr (hint == kEvictFirst || hint == kNoL1EvictFirst) {
    __stcs(reinterpret_cast<int4*>(p), *reinterpret_cast<const int4*>(&values));
  } else {
    *p = values;
  }
}

// `count` packs of output; the input's rows have `row` packs, or twice as many if gated.
template <Activation kind, bool gated, int threads, int depth, int pack, Hint hint>
__global__ void __launch_bounds__(threads)
    stream(Pack<pack>* out, const Pack<pack>* in, uint32_t count, Divider row) {
  const uint32_t first = blockIdx.x * (threads * depth) + threadIdx.x;
  Pack<pack> gates[depth];
  Pack<pack> ups[depth];
#pragma unroll
  for (int d = 0; d < depth; ++d) {
    const uint32_t i = first + d * threads;
    if (i >= count) break;
    const uint32_t at = gated ? i + row.divide(i) * row.divisor : i;
    gates[d] = load<hint>(in + at);
    if constexpr (gated) ups[d] = load<hint>(in + at + row.divisor);
  }
#pragma unroll
  for (int d = 0; d < depth; ++d) {
    const uint32_t i = first + d * threads;
    if (i >= count) break;
    Pack<pack> result;
#pragma unroll
    for (int e = 0; e < pack; ++e) {
      float value = activate<kind, __half>(to_float(gates[d].values[e]), 0.0f);
      if constexpr (gated) value *= to_float(ups[d].values[e]);
      assign(result.values[e], value);
    }
    store<hint>(out + i, result);
  }
}

template <Activation kind, bool gated, int threads, int depth, int pack, Hint hint>
int run(void* out, const void* in, uint32_t count, uint32_t row, cudaStream_t on) {
  constexpr uint32_t kBlock = threads * depth;
  const uint32_t packs = count / pack;
  stream<kind, gated, threads, depth, pack, hint>
      <<<(packs + kBlock - 1) / kBlock, threads, 0, on>>>(
          static_cast<Pack<pack>*>(out), static_cast<const Pack<pack>*>(in), packs,
          Divider(row / pack));
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

// `count` elements of output, `row` in each row of it. Returns a cudaError_t, or -1 for a number without a variant.
extern "C" int run_variant(
    int number, void* out, const void* in, uint32_t count, uint32_t row, void* on) {
  const auto stream = static_cast<cudaStream_t>(on);
  switch (number) {
#define VARIANT(number, kind, gated, threads, depth, pack, hint) \
  case number:                                                   \
    return run<Activation::kind, gated, threads, depth, pack, hint>(out, in, count, row, stream);
#include "activation_variants.inc"
  }
  return -1;
}
