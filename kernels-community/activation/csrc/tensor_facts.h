// What torch tells of a tensor, asked for once: every answer is a call into torch, and an op on a small tensor
// takes not much longer than a few dozen of them.
#pragma once

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include "activation_kind.h"

namespace activation {

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

  int64_t numel() const {
    int64_t count = 1;
    for (int64_t i = 0; i < dim; ++i) count *= sizes[i];
    return count;
  }

  // The size of the last dimension; of a tensor without dimensions, 1.
  int64_t last_size() const { return dim == 0 ? 1 : sizes[dim - 1]; }

  bool is_contiguous() const {
    int64_t expected = 1;
    for (int64_t i = dim - 1; i >= 0; --i) {
      if (sizes[i] == 0) return true;
      if (sizes[i] != 1 && strides[i] != expected) return numel() == 0;
      expected *= sizes[i];
    }
    return true;
  }

  // Whether the elements fill their memory without holes or overlap, in any order of dimensions.
  bool is_dense() const {
    int64_t expected = 1;
    // Every pass finds the dimension whose stride is the size of all those inside it.
    for (;;) {
      bool found = false;
      bool done = true;
      for (int64_t i = 0; i < dim; ++i) {
        if (sizes[i] == 1 || strides[i] < expected) continue;
        done = false;
        if (strides[i] == expected) {
          expected *= sizes[i];
          found = true;
          break;
        }
      }
      if (done) return expected == numel();
      if (!found) return false;
    }
  }
};

inline Element element_of(const TensorFacts& tensor) {
  if (tensor.dtype == aoti_torch_dtype_float16()) return Element::kHalf;
  if (tensor.dtype == aoti_torch_dtype_bfloat16()) return Element::kBFloat16;
  if (tensor.dtype == aoti_torch_dtype_float32()) return Element::kFloat;
  using torch::headeronly::ScalarType;
  const auto dtype =
      torch::stable::detail::to<ScalarType>(torch::stable::detail::from(tensor.dtype));
  STD_TORCH_CHECK(
      false, "dtype must be float32, bfloat16 or float16, not ",
      torch::headeronly::toString(dtype));
}

inline void check_alike(const TensorFacts& tensor, const TensorFacts& input, const char* name) {
  STD_TORCH_CHECK(tensor.dtype == input.dtype, name, " and input differ in dtype");
  STD_TORCH_CHECK(
      tensor.device_type == input.device_type && tensor.device == input.device, name,
      " and input are on different devices");
  STD_TORCH_CHECK(
      tensor.dim == input.dim, name, " and input differ in their number of dimensions");
}

}  // namespace activation
