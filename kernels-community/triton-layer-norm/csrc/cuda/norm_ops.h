// The CUDA backend's entry points, on torch's current stream.
#pragma once

#include <optional>
#include <tuple>

#include <torch/csrc/stable/tensor.h>

namespace layer_norm::cuda {

using torch::stable::Tensor;

// x is float32, bfloat16 or float16; weight and bias have its dtype, or both float32; the residual has
// its dtype or float32. Any strides: rows at any distance are read in place, other layouts cost a copy.
Tensor norm(
    const Tensor& x, std::optional<Tensor> weight, std::optional<Tensor> bias, double eps,
    bool is_rms);

// Also the sum of x and the residual: float32 if `wide_sum`, else of the dtype of x.
std::tuple<Tensor, Tensor> add_norm(
    const Tensor& x, const Tensor& residual, std::optional<Tensor> weight,
    std::optional<Tensor> bias, double eps, bool is_rms, bool wide_sum);

// The gradients of h, and, where they are wanted, of the weight and of a bias of the weight's dtype.
std::tuple<Tensor, std::optional<Tensor>, std::optional<Tensor>> norm_backward(
    const Tensor& h, std::optional<Tensor> weight, const Tensor& dy, std::optional<Tensor> dsum,
    double eps, bool is_rms, bool wants_dweight, bool wants_dbias);

}  // namespace layer_norm::cuda
