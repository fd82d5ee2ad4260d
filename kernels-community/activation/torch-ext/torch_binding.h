// The functions behind the ops: thin adapters from an op's signature to a backend's `run`, which carries
// out a plan.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

#include "../csrc/activation_kind.h"
#include "../csrc/cpu/cpu_activation.h"
#include "../csrc/new_result.h"
#if defined(CUDA_KERNEL)
#include "../csrc/cuda/cuda_activation.h"
#endif

namespace activation {

template <auto run, Activation kind>
void unary(Tensor& out, const Tensor& input) {
  const LaunchPlan plan = plan_launch(out, input, Form::kUnary);
  run(kind, plan);
  finish_launch(plan, out);
}

template <auto run, Activation kind, Gate gate>
void gated(Tensor& out, const Tensor& input) {
  const LaunchPlan plan = plan_launch(out, input, Form::kGated);
  run(kind, gate, plan, 0.0);
  finish_launch(plan, out);
}

template <auto run>
void fatrelu_and_mul(Tensor& out, const Tensor& input, double threshold) {
  const LaunchPlan plan = plan_launch(out, input, Form::kGated);
  run(Activation::kFatrelu, Gate::kFirstHalf, plan, threshold);
  finish_launch(plan, out);
}

// The same into a new tensor.
template <auto run, Activation kind>
Tensor unary_value(const Tensor& input) {
  Planned planned = plan_unary_value(input);
  run(kind, planned.plan);
  finish_launch(planned.plan, planned.result);
  return planned.result;
}

template <auto run, Activation kind, Gate gate>
Tensor gated_value(const Tensor& input) {
  const Planned planned = plan_gated_value(input);
  run(kind, gate, planned.plan, 0.0);
  return planned.result;
}

template <auto run>
Tensor fatrelu_and_mul_value(const Tensor& input, double threshold) {
  const Planned planned = plan_gated_value(input);
  run(Activation::kFatrelu, Gate::kFirstHalf, planned.plan, threshold);
  return planned.result;
}

inline std::string cpu_isa() { return cpu::isa(); }

#if defined(CUDA_KERNEL)
template <Activation kind>
Tensor unary_backward(const Tensor& grad_output, const Tensor& input) {
  return cuda::unary_gradient(kind, grad_output, input);
}

template <Activation kind, Gate gate>
Tensor gated_backward(const Tensor& grad_output, const Tensor& input) {
  return cuda::gated_gradient(kind, gate, grad_output, input, 0.0);
}

inline Tensor fatrelu_and_mul_backward(
    const Tensor& grad_output, const Tensor& input, double threshold) {
  return cuda::gated_gradient(
      Activation::kFatrelu, Gate::kFirstHalf, grad_output, input, threshold);
}
#endif

}  // namespace activation
