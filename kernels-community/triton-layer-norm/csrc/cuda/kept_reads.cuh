// Reads that tell the L2 to keep what they read, and copies into shared memory for which no register waits.
//
// Both from compute capability 8.0 on; below, a plain read and a plain copy.
#pragma once

#include "elements.cuh"

namespace layer_norm::cuda {

// As load_pack; the L2 gives these lines up after all others. In calls that do not fit into it, it then gives up y
// first, in the order in which it was written.
template <int count, class T>
__device__ inline Pack<T, count> load_kept(const T* from) {
  static_assert(count * sizeof(T) == kPackBytes);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  Pack<T, count> pack;
  auto& w = pack.words[0];
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(from), "l"(policy)
               : "memory");
  return pack;
#else
  return load_pack<count>(from);
#endif
}

// Begins to copy a pack into shared memory; it is there after wait_for_copies(), for this thread.
__device__ inline void copy_later(uint4* to, const void* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
#else
  *to = *static_cast<const uint4*>(from);
#endif
}

__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace layer_norm::cuda
