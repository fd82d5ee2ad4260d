// Where a call runs: the device of a tensor, what is known of it, and torch's current stream there.
#pragma once

#include <optional>

#include <cuda_runtime_api.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>

#include "norm_calls.h"

namespace layer_norm::cuda {

class __attribute__((visibility("hidden"))) CurrentStream {
 public:
  explicit CurrentStream(const torch::stable::Tensor& tensor) {
    const auto device = tensor.get_device_index();
    int current = -1;
    // To make a guard costs more than to look.
    if (cudaGetDevice(&current) != cudaSuccess || current != device) guard_.emplace(device);
    void* handle = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &handle));
    stream_ = static_cast<cudaStream_t>(handle);
  }

  operator cudaStream_t() const { return stream_; }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_ = nullptr;
};

inline Device look_at_device(int index) {
  int processors = 0;
  int major = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, index));
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  return {processors, major >= 9};
}

// What is known of the device of a tensor; asked once for the first device of a thread's calls.
inline const Device& device_of(const torch::stable::Tensor& tensor) {
  thread_local int known_index = -1;
  thread_local Device known = {};
  const int index = tensor.get_device_index();
  if (index != known_index) {
    known = look_at_device(index);
    known_index = index;
  }
  return known;
}

}  // namespace layer_norm::cuda
