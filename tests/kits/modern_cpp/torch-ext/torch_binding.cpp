#include <torch/csrc/stable/library.h>

#include "registration.h"

void modern(torch::stable::Tensor& out, const torch::stable::Tensor& input);

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("modern(Tensor! out, Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("modern", TORCH_BOX(&modern));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
