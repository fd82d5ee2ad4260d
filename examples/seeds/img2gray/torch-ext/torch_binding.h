// What is behind the op on each device: (H, W, 3) and (H, W) of uint8, both contiguous.
#pragma once

#include <ATen/core/Tensor.h>

void img2gray_cpu(const at::Tensor& input, at::Tensor& output);
#if defined(CUDA_KERNEL)
void img2gray_cuda(const at::Tensor& input, at::Tensor& output);
#endif
