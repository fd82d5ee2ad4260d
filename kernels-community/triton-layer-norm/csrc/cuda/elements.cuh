// Elements and packs of them: 16 bytes of neighbours, converted to float and back.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "norm_calls.h"

namespace layer_norm::cuda {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ inline void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

constexpr int kPackBytes = 16;

// How many elements of T a pack has.
template <class T>
constexpr int kPack = kPackBytes / sizeof(T);

// `count` neighbours as they lie in memory. In words, since the compiler would move 16-bit elements
// about one by one.
template <class T, int count>
struct Pack {
  uint4 words[count * sizeof(T) / kPackBytes];
};

template <int count, class T>
__device__ inline Pack<T, count> load_pack(const T* from) {
  Pack<T, count> pack;
#pragma unroll
  for (unsigned i = 0; i < sizeof(pack) / kPackBytes; ++i) {
    pack.words[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return pack;
}

template <class T, int count>
__device__ inline Pack<T, count> zero_pack() {
  Pack<T, count> pack;
#pragma unroll
  for (unsigned i = 0; i < sizeof(pack) / kPackBytes; ++i) pack.words[i] = make_uint4(0, 0, 0, 0);
  return pack;
}

// Makes the compiler forget that it has converted a pack: it would keep the floats as well, in twice as
// many registers as the pack itself.
template <class T, int count>
__device__ inline void stay_packed(Pack<T, count>& pack) {
#pragma unroll
  for (unsigned i = 0; i < sizeof(pack) / kPackBytes; ++i) {
    auto& w = pack.words[i];
    asm volatile("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w));
  }
}

__device__ inline void unpack_word(uint32_t word, float* to, float) {
  to[0] = __uint_as_float(word);
}
__device__ inline void unpack_word(uint32_t word, float* to, __half) {
  const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word));
  to[0] = pair.x;
  to[1] = pair.y;
}
__device__ inline void unpack_word(uint32_t word, float* to, __nv_bfloat16) {
  to[0] = __uint_as_float(word << 16);
  to[1] = __uint_as_float(word & 0xffff0000u);
}

__device__ inline uint32_t pack_word(const float* from, float) { return __float_as_uint(from[0]); }
__device__ inline uint32_t pack_word(const float* from, __half) {
  const __half2 pair = __floats2half2_rn(from[0], from[1]);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint32_t pack_word(const float* from, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(from[0], from[1]);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <class T, int count>
__device__ inline void unpack(const Pack<T, count>& pack, float (&to)[count]) {
  constexpr int kEach = 4 / sizeof(T);
#pragma unroll
  for (unsigned i = 0; i < sizeof(pack) / kPackBytes; ++i) {
    float* part = to + i * 4 * kEach;
    unpack_word(pack.words[i].x, part, T());
    unpack_word(pack.words[i].y, part + kEach, T());
    unpack_word(pack.words[i].z, part + 2 * kEach, T());
    unpack_word(pack.words[i].w, part + 3 * kEach, T());
  }
}

template <class T, int count>
__device__ inline void store_floats(T* to, const float (&from)[count]) {
  constexpr int kEach = 4 / sizeof(T);
#pragma unroll
  for (int i = 0; i < count * static_cast<int>(sizeof(T)) / kPackBytes; ++i) {
    const float* part = from + i * 4 * kEach;
    reinterpret_cast<uint4*>(to)[i] = make_uint4(
        pack_word(part, T()), pack_word(part + kEach, T()), pack_word(part + 2 * kEach, T()),
        pack_word(part + 3 * kEach, T()));
  }
}

// The elements from `index` on of memory that holds floats if `is_wide`, else T.
template <class T>
__device__ inline void load_floats(
    const void* from, bool is_wide, int64_t index, float (&to)[kPack<T>]) {
  if (is_wide) {
    unpack(load_pack<kPack<T>>(static_cast<const float*>(from) + index), to);
  } else {
    unpack(load_pack<kPack<T>>(static_cast<const T*>(from) + index), to);
  }
}

template <class T>
__device__ inline void store_wide_or_not(
    void* to, bool is_wide, int64_t index, const float (&from)[kPack<T>]) {
  if (is_wide) {
    store_floats(static_cast<float*>(to) + index, from);
  } else {
    store_floats(static_cast<T*>(to) + index, from);
  }
}

// Calls body<T, W>() for the types of the elements and of the parameters.
template <class Body>
cudaError_t with_types(Element element, bool has_wide_parameters, const Body& body) {
  switch (element) {
    case Element::kFloat: return body.template operator()<float, float>();
    case Element::kBFloat16:
      return has_wide_parameters ? body.template operator()<__nv_bfloat16, float>()
                                 : body.template operator()<__nv_bfloat16, __nv_bfloat16>();
    case Element::kHalf:
      return has_wide_parameters ? body.template operator()<__half, float>()
                                 : body.template operator()<__half, __half>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace layer_norm::cuda
