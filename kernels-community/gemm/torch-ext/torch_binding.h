// The functions behind the ops: thin adapters from an op's signature to a backend's entry points.
#pragma once

#include <cstdint>

#include <torch/csrc/stable/tensor.h>

#include "../csrc/cpu/cpu_gemm.h"
#include "../csrc/product.h"
#if defined(CUDA_KERNEL)
#include "../csrc/cuda/cuda_gemm.h"
#endif

namespace gemm {

inline void gemm_out_cpu(
    Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_scale, const Tensor& b_scale,
    bool nt, int64_t /*tile*/) {
  cpu::multiply_into(c, a, b, a_scale, b_scale, nt);
}

inline Tensor gemm_cpu(
    const Tensor& a, const Tensor& b, const Tensor& a_scale, const Tensor& b_scale, bool nt) {
  Tensor c = make_result(a, b, nt);
  cpu::multiply_into(c, a, b, a_scale, b_scale, nt);
  return c;
}

#if defined(CUDA_KERNEL)
inline void gemm_out_cuda(
    Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_scale, const Tensor& b_scale,
    bool nt, int64_t tile) {
  cuda::multiply_into(c, a, b, a_scale, b_scale, nt, tile);
}

inline Tensor gemm_cuda(
    const Tensor& a, const Tensor& b, const Tensor& a_scale, const Tensor& b_scale, bool nt) {
  Tensor c = make_result(a, b, nt);
  cuda::multiply_into(c, a, b, a_scale, b_scale, nt, -1);
  return c;
}
#endif

}  // namespace gemm
