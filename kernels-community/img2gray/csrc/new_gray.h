// Makes the tensor that the op returns, and sees a picture of planes as one of pixels.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

namespace img2gray {

using torch::stable::Tensor;

// (3, H, W) as (H, W, 3), and the same with N before.
inline Tensor move_channels_last(const Tensor& image) {
  const auto from = static_cast<size_t>(image.dim() - 3);
  std::vector<int64_t> sizes(image.sizes().begin(), image.sizes().end());
  std::vector<int64_t> strides(image.strides().begin(), image.strides().end());
  for (size_t i = from; i < from + 2; ++i) {
    std::swap(sizes[i], sizes[i + 1]);
    std::swap(strides[i], strides[i + 1]);
  }
  AtenTensorHandle moved = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_as_strided(image.get(), sizes.data(), strides.data(), &moved));
  return Tensor(moved);
}

// A contiguous (H, W) for (H, W, 3), and the same with N before. Straight from the allocator: for a
// small picture, a call by way of the dispatcher would take longer than all that follows.
inline Tensor make_gray(const Tensor& pixels) {
  const std::vector<int64_t> sizes(pixels.sizes().begin(), pixels.sizes().end() - 1);
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  int32_t dtype = 0;
  int32_t device = 0;
  int32_t index = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(pixels.get(), &dtype));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(pixels.get(), &device));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(pixels.get(), &index));
  AtenTensorHandle made = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), dtype, device, index,
      &made));
  return Tensor(made);
}

// The grey of a picture in a tensor of its own, by a backend's `convert`.
template <auto convert>
Tensor gray_value(const Tensor& image, const std::string& weights, bool channels_first) {
  const int64_t dims = image.dim();
  STD_TORCH_CHECK(dims == 3 || dims == 4, "image must have three dimensions, or four for a batch");
  const Tensor pixels = channels_first ? move_channels_last(image) : image;
  Tensor gray = make_gray(pixels);
  convert(gray, pixels, weights);
  return gray;
}

}  // namespace img2gray
