// The functions behind the ops: thin adapters from an op's signature to a backend's entry points.
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

using torch::stable::Tensor;

template <Activation kind>
void unary_cpu(Tensor& out, const Tensor& input) {
  cpu::apply_unary(kind, out, input);
}

template <Activation kind, Gate gate>
void gated_cpu(Tensor& out, const Tensor& input) {
  cpu::apply_gated(kind, gate, out, input);
}

inline void fatrelu_and_mul_cpu(Tensor& out, const Tensor& input, double threshold) {
  cpu::apply_gated(Activation::kFatrelu, Gate::kFirstHalf, out, input, threshold);
}

// The same into a new tensor.
template <Activation kind>
Tensor unary_value_cpu(const Tensor& input) {
  Tensor out = make_result(input, Form::kUnary);
  cpu::apply_unary(kind, out, input);
  return out;
}

template <Activation kind, Gate gate>
Tensor gated_value_cpu(const Tensor& input) {
  Tensor out = make_result(input, Form::kGated);
  cpu::apply_gated(kind, gate, out, input);
  return out;
}

inline Tensor fatrelu_and_mul_value_cpu(const Tensor& input, double threshold) {
  Tensor out = make_result(input, Form::kGated);
  cpu::apply_gated(Activation::kFatrelu, Gate::kFirstHalf, out, input, threshold);
  return out;
}

inline std::string cpu_isa() { return cpu::isa(); }

#if defined(CUDA_KERNEL)
template <Activation kind>
void unary_cuda(Tensor& out, const Tensor& input) {
  cuda::apply_unary(kind, out, input);
}

template <Activation kind, Gate gate>
void gated_cuda(Tensor& out, const Tensor& input) {
  cuda::apply_gated(kind, gate, out, input);
}

inline void fatrelu_and_mul_cuda(Tensor& out, const Tensor& input, double threshold) {
  cuda::apply_gated(Activation::kFatrelu, Gate::kFirstHalf, out, input, threshold);
}

template <Activation kind>
Tensor unary_value_cuda(const Tensor& input) {
  Tensor out = make_result(input, Form::kUnary);
  cuda::apply_unary(kind, out, input);
  return out;
}

template <Activation kind, Gate gate>
Tensor gated_value_cuda(const Tensor& input) {
  Tensor out = make_result(input, Form::kGated);
  cuda::apply_gated(kind, gate, out, input);
  return out;
}

inline Tensor fatrelu_and_mul_value_cuda(const Tensor& input, double threshold) {
  Tensor out = make_result(input, Form::kGated);
  cuda::apply_gated(Activation::kFatrelu, Gate::kFirstHalf, out, input, threshold);
  return out;
}

template <Activation kind>
Tensor unary_backward_cuda(const Tensor& grad_output, const Tensor& input) {
  return cuda::unary_gradient(kind, grad_output, input);
}

template <Activation kind, Gate gate>
Tensor gated_backward_cuda(const Tensor& grad_output, const Tensor& input) {
  return cuda::gated_gradient(kind, gate, grad_output, input);
}

inline Tensor fatrelu_and_mul_backward_cuda(
    const Tensor& grad_output, const Tensor& input, double threshold) {
  return cuda::gated_gradient(
      Activation::kFatrelu, Gate::kFirstHalf, grad_output, input, threshold);
}
#endif

}  // namespace activation
