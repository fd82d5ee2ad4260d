// The CPU backend's entry point.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

namespace img2gray::cpu {

// Fills `out` (H, W) or (N, H, W) from `image` (H, W, 3) or (N, H, W, 3) with any strides:
// uint8, float16, bfloat16, float32 or float64, the same on both sides.
void convert(
    torch::stable::Tensor& out, const torch::stable::Tensor& image, const std::string& weights);

}  // namespace img2gray::cpu
