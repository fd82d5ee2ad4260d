// Registers the ops. Those with `out` write into it and allocate nothing; a value is a new tensor. Values on a GPU get a
// node of autograd where a library for the torch that runs is loaded: ../csrc/node/activation_node.cpp.
#include "torch_binding.h"

#include <torch/csrc/stable/library.h>

#include "registration.h"

constexpr auto kGelu = activation::Activation::kGelu;
constexpr auto kGeluTanh = activation::Activation::kGeluTanh;
constexpr auto kGeluQuick = activation::Activation::kGeluQuick;
constexpr auto kSilu = activation::Activation::kSilu;
constexpr auto kFirst = activation::Gate::kFirstHalf;
constexpr auto kSecond = activation::Gate::kSecondHalf;

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gelu(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_fast(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_new(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_quick(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_tanh(Tensor! out, Tensor input) -> ()");
  ops.def("silu(Tensor! out, Tensor input) -> ()");

  ops.def("silu_and_mul(Tensor! out, Tensor input) -> ()");
  ops.def("mul_and_silu(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_and_mul(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_tanh_and_mul(Tensor! out, Tensor input) -> ()");
  ops.def("fatrelu_and_mul(Tensor! out, Tensor input, float threshold) -> ()");

  ops.def("gelu_value(Tensor input) -> Tensor");
  ops.def("gelu_quick_value(Tensor input) -> Tensor");
  ops.def("gelu_tanh_value(Tensor input) -> Tensor");
  ops.def("silu_value(Tensor input) -> Tensor");

  ops.def("silu_and_mul_value(Tensor input) -> Tensor");
  ops.def("mul_and_silu_value(Tensor input) -> Tensor");
  ops.def("gelu_and_mul_value(Tensor input) -> Tensor");
  ops.def("gelu_tanh_and_mul_value(Tensor input) -> Tensor");
  ops.def("fatrelu_and_mul_value(Tensor input, float threshold) -> Tensor");

#if defined(CUDA_KERNEL)
  // On other devices the gradients are plain torch: gradients.py.
  ops.def("gelu_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def("gelu_quick_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def("gelu_tanh_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def("silu_backward(Tensor grad_output, Tensor input) -> Tensor");

  ops.def("silu_and_mul_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def("mul_and_silu_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def("gelu_and_mul_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def("gelu_tanh_and_mul_backward(Tensor grad_output, Tensor input) -> Tensor");
  ops.def(
      "fatrelu_and_mul_backward(Tensor grad_output, Tensor input, float threshold) -> Tensor");
#endif

  ops.def("_cpu_isa() -> str");
}

// An op without tensors has no device to be dispatched by.
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, ops) {
  ops.impl("_cpu_isa", TORCH_BOX(&activation::cpu_isa));
}

// What every backend has.
#define IMPLEMENT_FORWARD(backend)                                                                  \
  ops.impl("gelu", TORCH_BOX((&unary<backend::run_unary, kGelu>)));                                  \
  ops.impl("gelu_fast", TORCH_BOX((&unary<backend::run_unary, kGeluTanh>)));                         \
  ops.impl("gelu_new", TORCH_BOX((&unary<backend::run_unary, kGeluTanh>)));                          \
  ops.impl("gelu_quick", TORCH_BOX((&unary<backend::run_unary, kGeluQuick>)));                       \
  ops.impl("gelu_tanh", TORCH_BOX((&unary<backend::run_unary, kGeluTanh>)));                         \
  ops.impl("silu", TORCH_BOX((&unary<backend::run_unary, kSilu>)));                                  \
                                                                                                     \
  ops.impl("silu_and_mul", TORCH_BOX((&gated<backend::run_gated, kSilu, kFirst>)));                  \
  ops.impl("mul_and_silu", TORCH_BOX((&gated<backend::run_gated, kSilu, kSecond>)));                 \
  ops.impl("gelu_and_mul", TORCH_BOX((&gated<backend::run_gated, kGelu, kFirst>)));                  \
  ops.impl("gelu_tanh_and_mul", TORCH_BOX((&gated<backend::run_gated, kGeluTanh, kFirst>)));         \
  ops.impl("fatrelu_and_mul", TORCH_BOX((&fatrelu_and_mul<backend::run_gated>)));                    \
                                                                                                     \
  ops.impl("gelu_value", TORCH_BOX((&unary_value<backend::run_unary, kGelu>)));                      \
  ops.impl("gelu_quick_value", TORCH_BOX((&unary_value<backend::run_unary, kGeluQuick>)));           \
  ops.impl("gelu_tanh_value", TORCH_BOX((&unary_value<backend::run_unary, kGeluTanh>)));             \
  ops.impl("silu_value", TORCH_BOX((&unary_value<backend::run_unary, kSilu>)));                      \
                                                                                                     \
  ops.impl("silu_and_mul_value", TORCH_BOX((&gated_value<backend::run_gated, kSilu, kFirst>)));      \
  ops.impl("mul_and_silu_value", TORCH_BOX((&gated_value<backend::run_gated, kSilu, kSecond>)));     \
  ops.impl("gelu_and_mul_value", TORCH_BOX((&gated_value<backend::run_gated, kGelu, kFirst>)));      \
  ops.impl(                                                                                          \
      "gelu_tanh_and_mul_value",                                                                     \
      TORCH_BOX((&gated_value<backend::run_gated, kGeluTanh, kFirst>)));                             \
  ops.impl("fatrelu_and_mul_value", TORCH_BOX((&fatrelu_and_mul_value<backend::run_gated>)))

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  using namespace activation;
  IMPLEMENT_FORWARD(cpu);
}

#if defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  using namespace activation;
  IMPLEMENT_FORWARD(cuda);

  ops.impl("gelu_backward", TORCH_BOX(&unary_backward<kGelu>));
  ops.impl("gelu_quick_backward", TORCH_BOX(&unary_backward<kGeluQuick>));
  ops.impl("gelu_tanh_backward", TORCH_BOX(&unary_backward<kGeluTanh>));
  ops.impl("silu_backward", TORCH_BOX(&unary_backward<kSilu>));

  ops.impl("silu_and_mul_backward", TORCH_BOX((&gated_backward<kSilu, kFirst>)));
  ops.impl("mul_and_silu_backward", TORCH_BOX((&gated_backward<kSilu, kSecond>)));
  ops.impl("gelu_and_mul_backward", TORCH_BOX((&gated_backward<kGelu, kFirst>)));
  ops.impl("gelu_tanh_and_mul_backward", TORCH_BOX((&gated_backward<kGeluTanh, kFirst>)));
  ops.impl("fatrelu_and_mul_backward", TORCH_BOX(&fatrelu_and_mul_backward));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
