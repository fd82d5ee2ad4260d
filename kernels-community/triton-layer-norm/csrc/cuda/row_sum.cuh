// Sums over the threads of a row, the order of rows, and the start of a kernel before its predecessor has ended.
//
// A narrow block is blockDim.x threads for a row, a power of two up to a warp, by blockDim.y rows, summed by
// shuffles alone. Others are whole warps for one row. Every sum has a fixed order.
#pragma once

#include <cuda_runtime.h>

namespace layer_norm::cuda {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr int kPackThreads = 512;  // those of kernels that hold packs: more would have too few registers
constexpr int kMaxWarps = kMaxThreads / kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;

// Room for the sums of the warps of `count` values. Two sums in a row take turns in two of them, so
// that one barrier for each is enough.
template <int count>
struct WarpSums {
  float4 of[count][kMaxWarps / 4];
};

// Gives the lanes of a row, `width` of them and at most a warp, the sums of `values`.
template <int count>
__device__ inline void sum_over_lanes(float (&values)[count], unsigned width) {
#pragma unroll
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    if (offset < width) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        values[k] += __shfl_xor_sync(kAllLanes, values[k], offset);
      }
    }
  }
}

// Gives every thread of a row the sums of `values` over them; there are at most `most` warps, and
// exactly so many if `is_exact`.
template <bool is_narrow, int most = kPackThreads / kWarp, bool is_exact = false, int count>
__device__ inline void sum_over_row(float (&values)[count], WarpSums<count>& shared) {
  const unsigned width = is_exact ? most * kWarp : blockDim.x;
  sum_over_lanes(values, is_narrow ? width : kWarp);
  if constexpr (!is_narrow) {
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        reinterpret_cast<float*>(shared.of[k])[threadIdx.x / kWarp] = values[k];
      }
    }
    // Warps that are missing in the last four.
    const unsigned warps = width / kWarp;
    if (threadIdx.x < (-warps & 3)) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        reinterpret_cast<float*>(shared.of[k])[warps + threadIdx.x] = 0;
      }
    }
    __syncthreads();
    // Each thread adds them up itself: sooner done than a second round of shuffles.
#pragma unroll
    for (int k = 0; k < count; ++k) {
      float4 sum = shared.of[k][0];
#pragma unroll
      for (unsigned i = 1; i < most / 4; ++i) {
        if (i * 4 * kWarp < width) {
          const float4 more = shared.of[k][i];
          sum.x += more.x;
          sum.y += more.y;
          sum.z += more.z;
          sum.w += more.w;
        }
      }
      values[k] = (sum.x + sum.y) + (sum.z + sum.w);
    }
  }
}

// Mean of some values, and the sum of the squares of what they differ from it by.
struct Moments {
  float mean;
  float squares;
};

// Those of both halves of `count` values together, from each half's own: nothing cancels, whatever the mean.
__device__ inline Moments join(const Moments& a, const Moments& b, float count) {
  const float apart = b.mean - a.mean;
  return {0.5f * (a.mean + b.mean), fmaf(apart * apart, 0.25f * count, a.squares + b.squares)};
}

// Room for the moments of a row's warps, two in each.
template <int warps>
struct WarpMoments {
  float4 of[warps / 2];
};

// Gives every thread of a row of `warps` warps, a power of two, the moments of all their values, `count` of each
// thread's. One barrier, where a mean and then the squares around it would take two.
template <int count, int warps>
__device__ inline Moments join_over_row(Moments moments, WarpMoments<warps>& shared) {
  float joined = count;
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    joined *= 2;
    const Moments other = {
        __shfl_xor_sync(kAllLanes, moments.mean, offset),
        __shfl_xor_sync(kAllLanes, moments.squares, offset)};
    moments = join(moments, other, joined);
  }
  if (threadIdx.x % kWarp == 0) {
    reinterpret_cast<float2*>(shared.of)[threadIdx.x / kWarp] =
        make_float2(moments.mean, moments.squares);
  }
  __syncthreads();
  Moments of[warps / 2];
  joined *= 2;
#pragma unroll
  for (int i = 0; i < warps / 2; ++i) {
    const float4 two = shared.of[i];
    of[i] = join({two.x, two.y}, {two.z, two.w}, joined);
  }
#pragma unroll
  for (int left = warps / 4; left > 0; left /= 2) {
    joined *= 2;
#pragma unroll
    for (int i = 0; i < left; ++i) of[i] = join(of[2 * i], of[2 * i + 1], joined);
  }
  return of[0];
}

// What sum_together passes between the warps of a row. Warps that are missing count as nothing: the room is
// to be cleared before the first sum.
template <int count>
struct SharedSums {
  float of[count][kPackThreads / kWarp];

  __device__ void clear() {
    for (unsigned i = threadIdx.x; i < sizeof(of) / sizeof(float); i += blockDim.x) of[0][i] = 0;
  }
};

// The same as sum_over_row for two or four sums in a block of whole warps: with half the instructions,
// and later done, which is better where there are many rows to a thread. The lanes share the sums out,
// so that each has a part of one, and tell each other in the end.
template <int count>
__device__ inline void sum_together(float (&values)[count], SharedSums<count>& shared) {
  constexpr int kLanes = kWarp / count;  // that have a part of the same sum
  const unsigned lane = threadIdx.x % kWarp;
  unsigned offset = kWarp / 2;
#pragma unroll
  for (int left = count / 2; left > 0; left /= 2) {
    const bool is_upper = (lane & offset) != 0;
#pragma unroll
    for (int k = 0; k < left; ++k) {
      const float sent = is_upper ? values[k] : values[k + left];
      values[k] = is_upper ? values[k + left] : values[k];
      values[k] += __shfl_xor_sync(kAllLanes, sent, offset);
    }
    offset /= 2;
  }
  float sum = values[0];
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, apart);
  }
  const float(&own)[kPackThreads / kWarp] = shared.of[lane / kLanes];
  if (lane % kLanes == 0) shared.of[lane / kLanes][threadIdx.x / kWarp] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int i = 0; i < kPackThreads / kWarp; i += kLanes) sum += own[i + lane % kLanes];
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, apart);
  }
#pragma unroll
  for (int k = 0; k < count; ++k) values[k] = __shfl_sync(kAllLanes, sum, k * kLanes);
}

// The number of this block, counted from the last. What a predecessor wrote last is what the L2 still has, and a
// successor finds there what is written last here, its own first rows.
__device__ inline int64_t block_from_the_end() { return gridDim.x - 1 - blockIdx.x; }

// With PDL a kernel may be on the multiprocessors while its predecessor still runs: nothing is read or
// written before this.
__device__ inline void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Its own successor may come from here on, and waits likewise. No read moves past this: where it stands after the
// reads of a row, the compiler cannot put off those that are needed last, in favour of registers, until those
// that are needed first have come.
__device__ inline void let_successor_come() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Launches a kernel of one argument, with PDL or without.
template <class Arguments>
cudaError_t launch(
    void (*kernel)(Arguments), dim3 grid, dim3 block, size_t shared_bytes, bool pdl,
    cudaStream_t stream, const Arguments& arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = pdl ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments);
}

}  // namespace layer_norm::cuda
