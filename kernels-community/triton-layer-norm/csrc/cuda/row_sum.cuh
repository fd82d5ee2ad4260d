// Sums over the threads of a row, and the start of a kernel before its predecessor has ended.
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

// Gives every thread of a row the sums of `values` over them; there are at most `most` warps.
template <bool is_narrow, int most = kPackThreads / kWarp, int count>
__device__ inline void sum_over_row(float (&values)[count], WarpSums<count>& shared) {
  const unsigned width = blockDim.x;
#pragma unroll
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    if (!is_narrow || offset < width) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        values[k] += __shfl_xor_sync(kAllLanes, values[k], offset);
      }
    }
  }
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

// With PDL a kernel may be on the multiprocessors while its predecessor still runs: nothing is read or
// written before this. Its own successor may come as soon, and waits likewise.
__device__ inline void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
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
