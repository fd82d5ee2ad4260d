#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAGuard.h>

#include <cuda_runtime.h>

using namespace at;

template <typename T>
__global__ void rms_norm_kernel(T* y, const T* x, const T* weight, int width, float eps) {
  __shared__ float total;
  const int64_t row = blockIdx.x;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = static_cast<float>(x[row * width + i]);
    sum += value * value;
  }
  atomicAdd(&total, sum);
  __syncthreads();
  const float scale = rsqrtf(total / width + eps);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float factor = weight == nullptr ? 1.f : static_cast<float>(weight[i]);
    y[row * width + i] = static_cast<T>(static_cast<float>(x[row * width + i]) * scale * factor);
  }
}

at::Tensor rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight, double eps) {
  TORCH_CHECK(x.is_cuda(), "rms_norm: x must be on a GPU, at::kCUDA");
  const at::cuda::OptionalCUDAGuard guard(at::device_of(x));
  auto dense = x.contiguous();
  auto y = torch::empty(dense.sizes(), dense.options());
  const int width = dense.size(-1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
    rms_norm_kernel<scalar_t><<<dense.numel() / width, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<scalar_t>(), dense.data_ptr<scalar_t>(),
        weight ? weight->data_ptr<scalar_t>() : nullptr, width, eps);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
