// The ops on tensors: checks them, finds torch's stream, and hands plain memory to the launches.
#include <cstdint>

#include <cuda_runtime_api.h>

#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "../launch_plan.h"
#include "../new_result.h"
#include "cuda_activation.h"
#include "current_stream.h"
#include "launch.h"

namespace activation::cuda {
namespace {

Element element_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return Element::kFloat;
    case ScalarType::BFloat16: return Element::kBFloat16;
    case ScalarType::Half: return Element::kHalf;
    default:
      STD_TORCH_CHECK(
          false, "dtype must be float32, bfloat16 or float16, not ",
          torch::headeronly::toString(tensor.scalar_type()));
  }
}

Rows rows_of(const LaunchPlan& plan) {
  return {
      plan.input.const_data_ptr(), plan.out.mutable_data_ptr(), plan.rows, plan.cols,
      plan.in_stride, plan.out_stride};
}

void check_gradient(const Tensor& grad, const Tensor& input, int halves) {
  const auto last = input.dim() - 1;
  STD_TORCH_CHECK(
      grad.scalar_type() == input.scalar_type(), "grad_output and input differ in dtype");
  STD_TORCH_CHECK(
      grad.device() == input.device(), "grad_output and input are on different devices");
  STD_TORCH_CHECK(
      grad.dim() == input.dim() && (halves == 1 || last >= 0),
      "grad_output and input differ in their number of dimensions");
  for (int64_t i = 0; i <= last; ++i) {
    const int64_t factor = i == last ? halves : 1;
    STD_TORCH_CHECK(
        input.size(i) == factor * grad.size(i), "dimension ", i, ": grad_output has ",
        grad.size(i), ", input ", input.size(i));
  }
}

Tensor make_gradient(const Tensor& input) {
  const auto sizes = input.sizes();
  return make_contiguous(input, {sizes.begin(), sizes.end()});
}

Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

}  // namespace

void apply_unary(Activation kind, Tensor& out, const Tensor& input) {
  const LaunchPlan plan = plan_launch(out, input, Form::kUnary);
  const CurrentStream stream(input);
  STD_CUDA_CHECK(launch_unary(kind, element_of(input), rows_of(plan), stream));
  finish_launch(plan, out);
}

void apply_gated(
    Activation kind, Gate gate, Tensor& out, const Tensor& input, double threshold) {
  const LaunchPlan plan = plan_launch(out, input, Form::kGated);
  const CurrentStream stream(input);
  const auto cut = static_cast<float>(threshold);
  STD_CUDA_CHECK(launch_gated(kind, gate, element_of(input), rows_of(plan), cut, stream));
  finish_launch(plan, out);
}

Tensor unary_gradient(Activation kind, const Tensor& grad_output, const Tensor& input) {
  check_gradient(grad_output, input, 1);
  const CurrentStream stream(input);
  const Tensor grad = dense(grad_output);
  const Tensor x = dense(input);
  Tensor made = make_gradient(input);
  const GradientRows rows = {
      grad.const_data_ptr(), x.const_data_ptr(), made.mutable_data_ptr(), 1, x.numel()};
  STD_CUDA_CHECK(launch_unary_gradient(kind, element_of(input), rows, stream));
  return made;
}

Tensor gated_gradient(
    Activation kind, Gate gate, const Tensor& grad_output, const Tensor& input,
    double threshold) {
  check_gradient(grad_output, input, 2);
  const CurrentStream stream(input);
  const Tensor grad = dense(grad_output);
  const Tensor x = dense(input);
  Tensor made = make_gradient(input);
  const int64_t cols = grad.size(grad.dim() - 1);
  const GradientRows rows = {
      grad.const_data_ptr(), x.const_data_ptr(), made.mutable_data_ptr(),
      cols == 0 ? 0 : grad.numel() / cols, cols};
  const auto cut = static_cast<float>(threshold);
  STD_CUDA_CHECK(launch_gated_gradient(kind, gate, element_of(input), rows, cut, stream));
  return made;
}

}  // namespace activation::cuda
