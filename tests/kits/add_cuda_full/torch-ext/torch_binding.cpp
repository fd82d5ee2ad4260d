#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>

#include "registration.h"

torch::Tensor add_one(const torch::Tensor& input);

int64_t multiprocessors() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor input) -> Tensor");
  ops.impl("add_one", torch::kCUDA, &add_one);
  ops.def("multiprocessors() -> int", &multiprocessors);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
