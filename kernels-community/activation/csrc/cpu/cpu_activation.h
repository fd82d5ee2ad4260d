// The CPU backend's entry points.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

#include "../activation_kind.h"

namespace activation::cpu {

// out = f(input), element by element. Any layout; float32, bfloat16 or float16.
void apply_unary(
    Activation kind, torch::stable::Tensor& out, const torch::stable::Tensor& input);

// out = f(gate) * up, gate and up being the halves of input's last dimension.
void apply_gated(
    Activation kind, Gate gate, torch::stable::Tensor& out, const torch::stable::Tensor& input,
    double threshold = 0.0);

// The instruction set in use: "avx512", "avx2" or "baseline".
std::string isa();

}  // namespace activation::cpu
