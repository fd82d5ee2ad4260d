// Makes the tensors that ops return.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "launch_plan.h"

namespace activation {

// Uninitialised, with the dtype and device of `like`. Straight from the allocator: on a small tensor, a
// call by way of the dispatcher would take longer than all that follows.
inline Tensor make_tensor(
    const Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes, const int64_t* strides) {
  int32_t dtype = 0;
  int32_t device = 0;
  int32_t index = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &index));
  AtenTensorHandle made = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      static_cast<int64_t>(sizes.size()), sizes.data(), strides, dtype, device, index, &made));
  return Tensor(made);
}

inline Tensor make_contiguous(const Tensor& like, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return make_tensor(like, {sizes.data(), sizes.size()}, strides.data());
}

// What an op of this form fills for `input`: a tensor as torch.empty_like makes it, or a contiguous
// one of half the width.
inline Tensor make_result(const Tensor& input, Form form) {
  const auto sizes = input.sizes();
  if (form == Form::kUnary) {
    if (input.numel() == 0 || !is_dense(input)) return torch::stable::empty_like(input);
    return make_tensor(input, sizes, input.strides().data());
  }
  STD_TORCH_CHECK(
      !sizes.empty() && sizes.back() % 2 == 0, "the last dimension of input is not two halves");
  std::vector<int64_t> half(sizes.begin(), sizes.end());
  half.back() /= 2;
  return make_contiguous(input, half);
}

}  // namespace activation
