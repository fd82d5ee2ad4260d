// Two kernels: a thread a pixel in a 2D grid, for every layout and type; and four uint8 pixels a
// thread, for dense rows.
#include "cuda_img2gray.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "../image_view.h"

namespace img2gray::cuda {
namespace {

constexpr int kMaxGridRows = 65535;
constexpr int kPixelsPerThread = 4;

__device__ inline float to_real(float x) { return x; }
__device__ inline double to_real(double x) { return x; }
__device__ inline float to_real(__half x) { return __half2float(x); }
__device__ inline float to_real(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(double& to, double x) { to = x; }
__device__ inline void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ inline void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

__device__ inline int64_t row_offset(const ImageView& view, int64_t row) {
  return row / view.height * view.image_stride + row % view.height * view.row_stride;
}

// A thread a pixel: x runs along the row, y over the rows. A block is a tile of 32 x 8 pixels, so a
// warp reads neighbours. Pictures with more rows than a grid may have take another turn.
template <class T>
__global__ void img2gray_kernel(
    T* out, const T* in, ImageView view, Weights weights, FixedWeights fixed) {
  const int64_t x = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (x >= view.width) return;
  const int64_t rows = view.images * view.height;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  for (int64_t row = first; row < rows; row += static_cast<int64_t>(gridDim.y) * blockDim.y) {
    const T* pixel = in + row_offset(view, row) + x * view.pixel_stride;
    const T red = pixel[0];
    const T green = pixel[view.channel_stride];
    const T blue = pixel[2 * view.channel_stride];
    T& gray = out[row * view.width + x];
    if constexpr (std::is_same_v<T, uint8_t>) {
      gray = gray_of(fixed, red, green, blue);
    } else {
      assign(gray, gray_of(weights, to_real(red), to_real(green), to_real(blue)));
    }
  }
}

// Four interleaved pixels a thread: three loads and one store of 32 bits each.
__global__ void img2gray_packed_kernel(
    uint8_t* out, const uint8_t* in, ImageView view, FixedWeights weights) {
  const int64_t x =
      (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPixelsPerThread;
  if (x >= view.width) return;
  const int64_t rows = view.images * view.height;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const uint8_t* pixels = in + row_offset(view, row) + 3 * x;
    uint8_t* grays = out + row * view.width + x;
    if (x + kPixelsPerThread <= view.width) {
      const uint32_t* words = reinterpret_cast<const uint32_t*>(pixels);
      const uint32_t word[3] = {words[0], words[1], words[2]};
      const uint8_t* bytes = reinterpret_cast<const uint8_t*>(word);
      uint32_t packed = 0;
#pragma unroll
      for (int k = 0; k < kPixelsPerThread; ++k) {
        const uint32_t gray =
            gray_of(weights, bytes[3 * k], bytes[3 * k + 1], bytes[3 * k + 2]);
        packed |= gray << (8 * k);
      }
      *reinterpret_cast<uint32_t*>(grays) = packed;
    } else {
      for (int64_t k = 0; x + k < view.width; ++k) {
        grays[k] = gray_of(weights, pixels[3 * k], pixels[3 * k + 1], pixels[3 * k + 2]);
      }
    }
  }
}

// Whether every row of both sides begins at a multiple of four bytes.
bool rows_are_aligned(const uint8_t* out, const uint8_t* in, const ImageView& view) {
  int64_t all = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out)) |
                static_cast<int64_t>(reinterpret_cast<uintptr_t>(in));
  if (view.rows() > 1) all |= view.width | view.row_stride | view.image_stride;
  return all % 4 == 0;
}

unsigned grid_rows(int64_t blocks) {
  return static_cast<unsigned>(std::min<int64_t>(blocks, kMaxGridRows));
}

template <class T>
void convert_typed(Tensor& out, const Tensor& image, const Weights& weights, cudaStream_t stream) {
  const ImageView view = view_image(out, image);
  if (view.pixels() == 0) return;
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const T* from = static_cast<const T*>(image.const_data_ptr());
  const FixedWeights fixed = to_fixed(weights);
  if constexpr (std::is_same_v<T, uint8_t>) {
    if (view.is_interleaved() && rows_are_aligned(to, from, view)) {
      constexpr int kThreads = 256;
      constexpr int64_t kBlock = kThreads * kPixelsPerThread;
      const dim3 grid((view.width + kBlock - 1) / kBlock, grid_rows(view.rows()));
      img2gray_packed_kernel<<<grid, kThreads, 0, stream>>>(to, from, view, fixed);
      STD_CUDA_KERNEL_LAUNCH_CHECK();
      return;
    }
  }
  const dim3 block(32, 8);
  const dim3 grid(
      (view.width + block.x - 1) / block.x, grid_rows((view.rows() + block.y - 1) / block.y));
  img2gray_kernel<<<grid, block, 0, stream>>>(to, from, view, weights, fixed);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void convert(Tensor& out, const Tensor& image, const std::string& name) {
  const Weights& weights = find_weights(name);
  const auto device = image.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &handle));
  const auto stream = static_cast<cudaStream_t>(handle);
  switch (image.scalar_type()) {
    case ScalarType::Byte: return convert_typed<uint8_t>(out, image, weights, stream);
    case ScalarType::Float: return convert_typed<float>(out, image, weights, stream);
    case ScalarType::Double: return convert_typed<double>(out, image, weights, stream);
    case ScalarType::Half: return convert_typed<__half>(out, image, weights, stream);
    case ScalarType::BFloat16: return convert_typed<__nv_bfloat16>(out, image, weights, stream);
    default:
      STD_TORCH_CHECK(
          false, "dtype must be uint8 or a floating-point type, not ",
          torch::headeronly::toString(image.scalar_type()));
  }
}

}  // namespace img2gray::cuda
