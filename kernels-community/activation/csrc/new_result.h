// Makes the tensors that ops return.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/csrc/stable/ops.h>

#include "launch_plan.h"

namespace activation {

// Uninitialised, with the dtype and device of `like`. Straight from the allocator: on a small tensor, a
// call by way of the dispatcher would take longer than all that follows.
inline Tensor make_tensor(
    const TensorFacts& like, const int64_t* sizes, const int64_t* strides) {
  AtenTensorHandle made = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      like.dim, sizes, strides, like.dtype, like.device_type, like.device, &made));
  return Tensor(made);
}

// Contiguous, its last dimension divided by `parts`.
inline Tensor make_contiguous(const TensorFacts& like, int64_t parts = 1) {
  const int64_t dim = like.dim;
  std::vector<int64_t> room(2 * dim);
  int64_t* sizes = room.data();
  int64_t* strides = sizes + dim;
  int64_t stride = 1;
  for (int64_t i = dim - 1; i >= 0; --i) {
    sizes[i] = i == dim - 1 ? like.sizes[i] / parts : like.sizes[i];
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return make_tensor(like, sizes, strides);
}

// A result that is yet to be computed, by carrying out the plan.
struct __attribute__((visibility("hidden"))) Planned {
  Tensor result;
  LaunchPlan plan;
};

// The layout is that of torch.empty_like.
inline Planned plan_unary_value(const Tensor& input) {
  const TensorFacts from(input);
  const Element element = element_of(from);
  const int64_t total = from.numel();
  if (total == 0 || !from.is_dense()) {
    Tensor result = torch::stable::empty_like(input);
    LaunchPlan plan = plan_launch(result, input, Form::kUnary);
    return {std::move(result), std::move(plan)};
  }
  Tensor result = make_tensor(from, from.sizes, from.strides);
  void* out = result.mutable_data_ptr();
  return {
      std::move(result),
      {input.const_data_ptr(), out, 1, total, total, total, element, from.device}};
}

// Contiguous, and of half the width.
inline Planned plan_gated_value(const Tensor& input) {
  const TensorFacts from(input);
  const Element element = element_of(from);
  STD_TORCH_CHECK(
      from.dim > 0 && from.last_size() % 2 == 0,
      "the last dimension of input is not two halves");
  const int64_t cols = from.last_size() / 2;
  Tensor result = make_contiguous(from, 2);
  LaunchPlan plan = {
      nullptr, result.mutable_data_ptr(), cols == 0 ? 0 : from.numel() / (2 * cols), cols, cols,
      cols,    element,                   from.device};
  plan_input(plan, input, from);
  return {std::move(result), std::move(plan)};
}

}  // namespace activation
