// The CUDA backend's entry points; the same contract as cpu_activation.h, on the current stream.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include "../activation_kind.h"

namespace activation::cuda {

void apply_unary(
    Activation kind, torch::stable::Tensor& out, const torch::stable::Tensor& input);

void apply_gated(
    Activation kind, Gate gate, torch::stable::Tensor& out, const torch::stable::Tensor& input,
    double threshold = 0.0);

}  // namespace activation::cuda
