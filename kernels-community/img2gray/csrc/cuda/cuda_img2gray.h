// The CUDA backend's entry point; the same contract as cpu_img2gray.h, on the current stream.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

namespace img2gray::cuda {

void convert(
    torch::stable::Tensor& out, const torch::stable::Tensor& image, const std::string& weights);

}  // namespace img2gray::cuda
