// The ops on tensors: checks gradients, finds torch's stream, and hands plain memory to the launches.
#include <cstdint>
#include <optional>

#include <cuda_runtime_api.h>

#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "../new_result.h"
#include "cuda_activation.h"
#include "current_stream.h"
#include "launch.h"

namespace activation::cuda {
namespace {

Rows rows_of(const LaunchPlan& plan) {
  return {plan.input, plan.out, plan.rows, plan.cols, plan.in_stride, plan.out_stride};
}

void check_gradient(const TensorFacts& grad, const TensorFacts& input, int64_t halves) {
  check_alike(grad, input, "grad_output");
  STD_TORCH_CHECK(halves == 1 || input.dim > 0, "input has no last dimension to split");
  for (int64_t i = 0; i < input.dim; ++i) {
    const int64_t factor = i + 1 == input.dim ? halves : 1;
    STD_TORCH_CHECK(
        input.sizes[i] == factor * grad.sizes[i], "dimension ", i, ": grad_output has ",
        grad.sizes[i], ", input ", input.sizes[i]);
  }
}

// The elements of a tensor one behind the other: its own, or those of a copy, which `copy` then holds.
const void* dense(const Tensor& tensor, const TensorFacts& facts, std::optional<Tensor>& copy) {
  if (facts.is_contiguous()) return tensor.const_data_ptr();
  copy = torch::stable::contiguous(tensor);
  return copy->const_data_ptr();
}

// Makes the gradient of `input` by `launch(element, rows, stream)`.
template <class Launch>
Tensor make_gradient(
    const Tensor& grad_output, const Tensor& input, int64_t halves, const Launch& launch) {
  const TensorFacts grad(grad_output);
  const TensorFacts x(input);
  const Element element = element_of(x);
  check_gradient(grad, x, halves);
  const CurrentStream stream(x.device);
  std::optional<Tensor> dense_grad;
  std::optional<Tensor> dense_x;
  Tensor made = make_contiguous(x);
  const int64_t total = grad.numel();
  // A unary op is one row, as long as it is.
  const int64_t cols = halves == 1 ? total : grad.last_size();
  const GradientRows rows = {
      dense(grad_output, grad, dense_grad), dense(input, x, dense_x), made.mutable_data_ptr(),
      cols == 0 ? 0 : total / cols, cols};
  STD_CUDA_CHECK(launch(element, rows, stream));
  return made;
}

}  // namespace

void run_unary(Activation kind, const LaunchPlan& plan) {
  const CurrentStream stream(plan.device);
  STD_CUDA_CHECK(launch_unary(kind, plan.element, rows_of(plan), stream));
}

void run_gated(Activation kind, Gate gate, const LaunchPlan& plan, double threshold) {
  const CurrentStream stream(plan.device);
  const auto cut = static_cast<float>(threshold);
  STD_CUDA_CHECK(launch_gated(kind, gate, plan.element, rows_of(plan), cut, stream));
}

Tensor unary_gradient(Activation kind, const Tensor& grad_output, const Tensor& input) {
  return make_gradient(
      grad_output, input, 1, [&](Element element, const GradientRows& rows, cudaStream_t stream) {
        return launch_unary_gradient(kind, element, rows, stream);
      });
}

Tensor gated_gradient(
    Activation kind, Gate gate, const Tensor& grad_output, const Tensor& input,
    double threshold) {
  const auto cut = static_cast<float>(threshold);
  return make_gradient(
      grad_output, input, 2, [&](Element element, const GradientRows& rows, cudaStream_t stream) {
        return launch_gated_gradient(kind, gate, element, rows, cut, stream);
      });
}

}  // namespace activation::cuda
