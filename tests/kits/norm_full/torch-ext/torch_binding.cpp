#include <torch/library.h>

#include "registration.h"

// at::Tensor in a comment is nothing.
at::Tensor rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight, double eps);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor");
  ops.impl("rms_norm", torch::kCUDA, &rms_norm);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
