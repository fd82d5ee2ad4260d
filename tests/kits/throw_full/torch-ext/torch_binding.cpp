#include <torch/extension.h>

#include <string>

#include "registration.h"

std::string describe_mismatch(const at::Tensor& a, const at::Tensor& b);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("describe_mismatch(Tensor a, Tensor b) -> str");
  ops.impl("describe_mismatch", c10::kCPU, &describe_mismatch);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
