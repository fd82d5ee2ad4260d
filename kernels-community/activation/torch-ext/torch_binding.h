// The functions behind the ops: thin adapters from an op's signature to a backend's entry points.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

#include "../csrc/activation_kind.h"
#include "../csrc/cpu/cpu_activation.h"
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
void unary_backward_cuda(Tensor& grad_input, const Tensor& grad_output, const Tensor& input) {
  cuda::unary_gradient(kind, grad_input, grad_output, input);
}

template <Activation kind, Gate gate>
void gated_backward_cuda(Tensor& grad_input, const Tensor& grad_output, const Tensor& input) {
  cuda::gated_gradient(kind, gate, grad_input, grad_output, input);
}

inline void fatrelu_and_mul_backward_cuda(
    Tensor& grad_input, const Tensor& grad_output, const Tensor& input, double threshold) {
  cuda::gated_gradient(
      Activation::kFatrelu, Gate::kFirstHalf, grad_input, grad_output, input, threshold);
}
#endif

}  // namespace activation
