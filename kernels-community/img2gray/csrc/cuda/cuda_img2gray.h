// The CUDA backend's entry points; the same contract as cpu_img2gray.h, on the current stream.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

namespace img2gray::cuda {

void convert(
    torch::stable::Tensor& out, const torch::stable::Tensor& image, const std::string& weights);

// The same with a thread a pixel in a 2D grid, whatever the layout: what one writes first, kept to
// compare with.
void convert_by_grid(
    torch::stable::Tensor& out, const torch::stable::Tensor& image, const std::string& weights);

}  // namespace img2gray::cuda
