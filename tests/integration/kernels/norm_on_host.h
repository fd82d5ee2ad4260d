// Just enough of CUDA to run the norms' device code on a CPU: a fiber for each thread of a block, which runs
// up to the next barrier, and blocks one after the other.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <ucontext.h>

#include <cuda_runtime.h>

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace on_host {

constexpr unsigned kMost = 1024;
constexpr size_t kStack = 64 << 10;

inline ucontext_t scheduler;
inline std::vector<ucontext_t> fibers(kMost);
inline std::vector<bool> is_done(kMost);
inline std::vector<char> stacks(kMost * kStack);
inline std::function<void()> body;
inline unsigned current;
inline float exchanged[kMost];
inline float dynamic[4096];  // what `extern __shared__` stands for

inline void enter() {
  body();
  is_done[current] = true;
}

// Runs a block: every fiber up to the next barrier, in turns, until all have returned.
inline void run_block(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks.data() + i * kStack;
    fibers[i].uc_stack.ss_size = kStack;
    fibers[i].uc_link = &scheduler;
    makecontext(&fibers[i], enter, 0);
    is_done[i] = false;
  }
  for (bool is_left = true; is_left;) {
    is_left = false;
    for (current = 0; current < count; ++current) {
      if (is_done[current]) continue;
      threadIdx = {current % blockDim.x, current / blockDim.x, 0};
      swapcontext(&scheduler, &fibers[current]);
      is_left = is_left || !is_done[current];
    }
  }
}

}  // namespace on_host

inline void __syncthreads() { swapcontext(&on_host::fibers[on_host::current], &on_host::scheduler); }

// What the thread `from` has of a block's threads.
inline float exchange(float value, unsigned from) {
  on_host::exchanged[on_host::current] = value;
  __syncthreads();
  const float found = on_host::exchanged[from];
  __syncthreads();
  return found;
}

inline float __shfl_xor_sync(unsigned, float value, int offset) {
  return exchange(value, on_host::current ^ static_cast<unsigned>(offset));
}

inline float __shfl_sync(unsigned, float value, int lane) {
  return exchange(value, on_host::current / 32 * 32 + static_cast<unsigned>(lane));
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }

template <class Kernel, class Arguments>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, Kernel kernel, const Arguments& arguments) {
  gridDim = config->gridDim;
  blockDim = config->blockDim;
  const unsigned count = blockDim.x * blockDim.y;
  if (count > on_host::kMost) return cudaErrorInvalidConfiguration;
  for (unsigned y = 0; y < gridDim.y; ++y) {
    for (unsigned x = 0; x < gridDim.x; ++x) {
      blockIdx = {x, y, 0};
      on_host::body = [&] { kernel(arguments); };
      on_host::run_block(count);
    }
  }
  return cudaSuccess;
}

extern "C" __attribute__((weak)) cudaError_t cudaMemsetAsync(
    void* to, int value, size_t count, cudaStream_t) {
  std::memset(to, value, count);
  return cudaSuccess;
}
