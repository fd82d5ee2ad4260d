// The derivative of scale, for exactly one torch: torch's stable interface has no nodes of autograd.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "registration.h"

namespace {

at::Tensor call_scale(const at::Tensor& x, double factor) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(KERNEL_OP("scale"), "")
                             .typed<at::Tensor(const at::Tensor&, double)>();
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, factor);
}

struct Scale : torch::autograd::Function<Scale> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& x, double factor) {
    context->saved_data["factor"] = factor;
    return call_scale(x, factor);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    // By itself again, so that this is recorded where somebody wants a second derivative.
    return {Scale::apply(gradients[0], context->saved_data["factor"].toDouble()), at::Tensor()};
  }
};

at::Tensor record_scale(const at::Tensor& x, double factor) { return Scale::apply(x, factor); }

}  // namespace

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, AutogradCPU, ops) { ops.impl("scale", &record_scale); }
