#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/cuda/device_guard.h>

#include "add.h"

__global__ void add_one_kernel(const float* x, float* out, int64_t count) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < count) out[index] = x[index] + 1.0f;
}

void add_one(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  check_pair(x, out);
  const DLDevice device = x.device();
  const tvm::ffi::CUDADeviceGuard guard(device.device_id);
  auto stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const int64_t blocks = (x.numel() + 255) / 256;
  if (blocks == 0) return;
  add_one_kernel<<<blocks, 256, 0, stream>>>(static_cast<const float*>(x.data_ptr()),
                                             static_cast<float*>(out.data_ptr()), x.numel());
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}
