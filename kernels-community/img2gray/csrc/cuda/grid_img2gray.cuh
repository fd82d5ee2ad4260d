// The plain way, for every layout: a thread a pixel, in a 2D grid over the picture.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../image_view.h"
#include "device_gray.cuh"

namespace img2gray::cuda {

// x runs along the row, y over the rows. A block is a tile of 32 x 8 pixels, so a warp reads
// neighbours. Pictures with more rows than a grid may have take another turn.
template <class T>
__global__ void grid_kernel(
    T* out, const T* in, ImageView view, FactorsOf<T> factors) {
  const int64_t x = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (x >= view.width) return;
  const int64_t rows = view.images * view.height;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < rows;
       row += step) {
    const int64_t start = view.images == 1
                              ? row * view.row_stride
                              : row / view.height * view.image_stride +
                                    row % view.height * view.row_stride;
    const T* pixel = in + start + x * view.pixel_stride;
    out[row * view.width + x] = gray_pixel<T>(
        factors, pixel[0], pixel[view.channel_stride], pixel[2 * view.channel_stride]);
  }
}

}  // namespace img2gray::cuda
