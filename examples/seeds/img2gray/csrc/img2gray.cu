// A thread a pixel, in a 2D grid over the picture.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

namespace {

__global__ void img2gray_kernel(uint8_t* gray, const uint8_t* rgb, int64_t width, int64_t height) {
  const int64_t x = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t y = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int64_t pixel = y * width + x;
  const uint8_t* channel = rgb + 3 * pixel;
  gray[pixel] = static_cast<uint8_t>((21 * channel[0] + 72 * channel[1] + 7 * channel[2]) / 100);
}

}  // namespace

void img2gray_cuda(const at::Tensor& input, at::Tensor& output) {
  const int64_t height = input.size(0);
  const int64_t width = input.size(1);
  if (input.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(input.device());
  const dim3 block(16, 16);
  const dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
  img2gray_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
      output.mutable_data_ptr<uint8_t>(), input.const_data_ptr<uint8_t>(), width, height);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
