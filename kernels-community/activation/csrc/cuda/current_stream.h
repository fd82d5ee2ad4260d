// Where a call runs: a device and torch's current stream there, as long as it lives.
#pragma once

#include <cstdint>
#include <optional>

#include <cuda_runtime.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

namespace activation::cuda {

class __attribute__((visibility("hidden"))) CurrentStream {
 public:
  explicit CurrentStream(int32_t device) {
    int current = -1;
    if (cudaGetDevice(&current) != cudaSuccess || current != device) guard_.emplace(device);
    void* handle = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &handle));
    stream_ = static_cast<cudaStream_t>(handle);
  }

  operator cudaStream_t() const { return stream_; }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;  // costs more than to look
  cudaStream_t stream_ = nullptr;
};

}  // namespace activation::cuda
