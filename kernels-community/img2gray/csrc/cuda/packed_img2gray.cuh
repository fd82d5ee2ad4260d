// The fast way through dense rows: every access to device memory is 16 bytes wide, and a warp reads
// one run of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_runtime.h>

#include "device_gray.cuh"

namespace img2gray::cuda {

constexpr int kWarp = 32;

// The pixels that fill 16 bytes of one channel.
template <class T>
constexpr int kPack = 16 / sizeof(T);

// What a warp converts at once.
template <class T>
constexpr int kTile = kWarp * kPack<T>;

// Sixteen bytes of one channel, or of neighbouring pixels, as the words in which they came: bytes
// taken apart early would need a register each.
struct Pack {
  uint32_t words[4];
};

template <class T>
__device__ inline T element(const Pack& pack, int i) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<uint8_t>(pack.words[i / 4] >> (8 * (i % 4)));
  } else if constexpr (std::is_same_v<T, float>) {
    return __uint_as_float(pack.words[i]);
  } else if constexpr (std::is_same_v<T, double>) {
    return __hiloint2double(pack.words[2 * i + 1], pack.words[2 * i]);
  } else {
    const auto bits = static_cast<unsigned short>(pack.words[i / 2] >> (16 * (i % 2)));
    if constexpr (std::is_same_v<T, __half>) return __ushort_as_half(bits);
    else return __ushort_as_bfloat16(bits);
  }
}

__device__ inline Pack load(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}

__device__ inline void store(void* p, const Pack& pack) {
  *static_cast<uint4*>(p) =
      make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]);
}

// Rows of pixels whose beginnings are multiples of 16 bytes on both sides. Strides count elements.
struct Rows {
  int64_t width;
  uint32_t height;  // rows of one image
  int64_t image_stride;
  int64_t row_stride;
  int64_t channel_stride;
  uint32_t tiles;  // in one row, the last one perhaps not full
  uint32_t all_tiles;

  __device__ int64_t offset(uint32_t row) const {
    return row / height * image_stride + row % height * row_stride;
  }
};

// The top bytes of four sums, which are the grey values, in one word.
__device__ inline uint32_t top_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
}

// Grey of the kPack pixels whose channels `channel(i, c)` tells.
template <class T, class Channel>
__device__ inline Pack gray_pack(
    const FactorsOf<T>& factors, const Channel& channel) {
  Pack gray;
  if constexpr (std::is_same_v<T, uint8_t>) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t sums[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = 4 * w + k;
        sums[k] = factors.red * channel(i, 0) + factors.green * channel(i, 1) +
                  factors.blue * channel(i, 2);
      }
      gray.words[w] = top_bytes(sums[0], sums[1], sums[2], sums[3]);
    }
  } else {
    T values[kPack<T>];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] = gray_pixel<T>(factors, channel(i, 0), channel(i, 1), channel(i, 2));
    }
    memcpy(&gray, values, sizeof(gray));
  }
  return gray;
}

// The packs of one lane: three neighbours of interleaved pixels, so that each load of a warp touches all of
// 1536 bytes and takes a third of them, or one of each channel. Interleaved ones come from memory once; the other two
// loads find them in the cache of the processor. Packs that change hands in shared memory instead, each load one
// run of 512 bytes, were as fast for large pictures and slower for small ones.
template <class T, bool interleaved>
__device__ inline void convert_pack(
    T* to, const T* from, int64_t channel_stride, const FactorsOf<T>& factors) {
  Pack packs[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) packs[k] = load(from + k * (interleaved ? kPack<T> : channel_stride));
  store(to, gray_pack<T>(factors, [&](int i, int c) {
    return interleaved ? element<T>(packs[(3 * i + c) / kPack<T>], (3 * i + c) % kPack<T>)
                       : element<T>(packs[c], i);
  }));
}

template <class T>
__device__ inline void convert_pixel(
    T* to, const T* from, int64_t channel_stride, const FactorsOf<T>& factors) {
  *to = gray_pixel<T>(factors, from[0], from[channel_stride], from[2 * channel_stride]);
}

// One dense row, as most pictures are once they are merged: a thread's number says where its pack is, and for a few
// threads more, which of the pixels behind the last pack is theirs.
template <class T, bool interleaved, int threads>
__global__ void __launch_bounds__(threads) row_kernel(
    T* __restrict__ out, const T* __restrict__ in, const uint32_t packs, const uint32_t all,
    const int64_t channel_stride, const FactorsOf<T> factors) {
  const uint32_t i = blockIdx.x * threads + threadIdx.x;
  if (i >= all) return;
  constexpr int kStep = interleaved ? 3 : 1;
  if (i < packs) {
    const int64_t x = static_cast<int64_t>(i) * kPack<T>;
    convert_pack<T, interleaved>(out + x, in + kStep * x, channel_stride, factors);
  } else {
    const int64_t x = static_cast<int64_t>(packs) * kPack<T> + (i - packs);
    convert_pixel<T>(out + x, in + kStep * x, channel_stride, factors);
  }
}

// Several rows: a warp converts a tile of one.
template <class T, bool interleaved, int warps>
__global__ void __launch_bounds__(kWarp* warps) packed_kernel(
    T* __restrict__ out, const T* __restrict__ in, const Rows rows, const FactorsOf<T> factors) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t tile = blockIdx.x * warps + warp;
  if (tile >= rows.all_tiles) return;

  constexpr int kStep = interleaved ? 3 : 1;
  const uint32_t row = tile / rows.tiles;
  const int64_t x = static_cast<int64_t>(tile - row * rows.tiles) * kTile<T>;
  const T* from = in + rows.offset(row) + kStep * x;
  T* to = out + row * rows.width + x;

  if (const int64_t rest = rows.width - x; rest < kTile<T>) {
    for (int64_t i = lane; i < rest; i += kWarp) {
      convert_pixel<T>(to + i, from + kStep * i, rows.channel_stride, factors);
    }
  } else {
    const int64_t at = lane * kPack<T>;
    convert_pack<T, interleaved>(to + at, from + kStep * at, rows.channel_stride, factors);
  }
}

}  // namespace img2gray::cuda
