// The CPU backend's entry points.
#pragma once

#include <torch/csrc/stable/tensor.h>

namespace gemm::cpu {

// c = the product, in float32. Any strides; float8_e4m3fn or float8_e4m3fnuz.
void multiply_into(
    torch::stable::Tensor& c, const torch::stable::Tensor& a, const torch::stable::Tensor& b,
    const torch::stable::Tensor& a_scale, const torch::stable::Tensor& b_scale, bool nt);

}  // namespace gemm::cpu
