// The CUDA backend's entry points; the same contract as cpu_gemm.h, on the current stream.
#pragma once

#include <cstdint>

#include <torch/csrc/stable/tensor.h>

namespace gemm::cuda {

// c = the product. `tile` is a number of tile_table.h, or negative to let the kernel choose.
void multiply_into(
    torch::stable::Tensor& c, const torch::stable::Tensor& a, const torch::stable::Tensor& b,
    const torch::stable::Tensor& a_scale, const torch::stable::Tensor& b_scale, bool nt,
    int64_t tile);

}  // namespace gemm::cuda
