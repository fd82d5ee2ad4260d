// The CUDA backend's entry points, on torch's current stream.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include "../activation_kind.h"

namespace activation::cuda {

using torch::stable::Tensor;

// The contract of cpu_activation.h.
void apply_unary(Activation kind, Tensor& out, const Tensor& input);
void apply_gated(
    Activation kind, Gate gate, Tensor& out, const Tensor& input, double threshold = 0.0);

// The gradient of `input`, contiguous, from that of the result.
Tensor unary_gradient(Activation kind, const Tensor& grad_output, const Tensor& input);
Tensor gated_gradient(
    Activation kind, Gate gate, const Tensor& grad_output, const Tensor& input,
    double threshold = 0.0);

}  // namespace activation::cuda
