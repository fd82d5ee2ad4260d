// What torch tells of a tensor, asked for once: every answer is a call into torch, and an op on a small picture
// takes not much longer than a few dozen of them.
#pragma once

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>

namespace img2gray {

using torch::stable::Tensor;

// Right as long as the tensor lives and is not resized. Types and devices are torch's own numbers.
struct TensorFacts {
  int64_t dim = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  int32_t dtype = 0;
  int32_t device_type = 0;
  int32_t device = 0;

  explicit TensorFacts(const Tensor& tensor) {
    const AtenTensorHandle handle = tensor.get();
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle, &dim));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle, &sizes));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle, &strides));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle, &dtype));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle, &device_type));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(handle, &device));
  }
};

}  // namespace img2gray
