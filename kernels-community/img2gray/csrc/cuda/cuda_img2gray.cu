// Chooses between two kernels: the packed one for dense rows, and a thread a pixel in a 2D grid for
// every layout.
#include "cuda_img2gray.h"

#include <algorithm>
#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "../image_view.h"
#include "grid_img2gray.cuh"
#include "packed_img2gray.cuh"

namespace img2gray::cuda {
namespace {

// Eight warps of one tile each were the fastest or nearly so at every size on an H200.
constexpr int kWarps = 8;

template <class T>
int64_t tiles_of(const ImageView& view) {
  return (view.width + kTile<T> - 1) / kTile<T>;
}

// Whether every row begins at a multiple of 16 bytes on both sides, and tiles count in 32 bits.
template <class T>
bool fits_packs(const T* out, const T* in, const ImageView& view) {
  if (!view.is_interleaved() && !view.is_planar()) return false;
  if (view.rows() > 1 && view.rows() >= (int64_t{1} << 32) / tiles_of<T>(view)) return false;
  int64_t all = view.is_interleaved() ? 0 : view.channel_stride;
  if (view.rows() > 1) all |= view.width | view.row_stride | view.image_stride;
  all *= sizeof(T);
  all |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(out)) |
         static_cast<int64_t>(reinterpret_cast<uintptr_t>(in));
  return all % 16 == 0;
}

template <class T>
void launch_packed(
    T* out, const T* in, const ImageView& view, const Weights& weights, cudaStream_t stream) {
  const int64_t tiles = tiles_of<T>(view);
  const auto all_tiles = static_cast<uint32_t>(tiles * view.rows());
  const Rows rows = {
      view.width,          static_cast<uint32_t>(view.height), view.image_stride,
      view.row_stride,     view.channel_stride,                static_cast<uint32_t>(tiles),
      all_tiles};
  const unsigned blocks = (all_tiles + kWarps - 1) / kWarps;
  const auto kernel =
      view.is_interleaved() ? packed_kernel<T, true, kWarps> : packed_kernel<T, false, kWarps>;
  kernel<<<blocks, kWarp * kWarps, 0, stream>>>(out, in, rows, weights, to_fixed(weights));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <class T>
void launch_grid(
    T* out, const T* in, const ImageView& view, const Weights& weights, cudaStream_t stream) {
  constexpr int64_t kMaxGridRows = 65535;
  const dim3 block = view.rows() == 1 ? dim3(256) : dim3(32, 8);
  const dim3 grid(
      static_cast<unsigned>((view.width + block.x - 1) / block.x),
      static_cast<unsigned>(
          std::min<int64_t>((view.rows() + block.y - 1) / block.y, kMaxGridRows)));
  grid_kernel<<<grid, block, 0, stream>>>(out, in, view, weights, to_fixed(weights));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

enum class Form { kBest, kGrid };

template <class T>
void convert_typed(
    Form form, Tensor& out, const Tensor& image, const Weights& weights, cudaStream_t stream) {
  const ImageView view = view_image(out, image, form == Form::kBest);
  if (view.pixels() == 0) return;
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const T* from = static_cast<const T*>(image.const_data_ptr());
  if (form == Form::kBest && fits_packs(to, from, view)) {
    launch_packed(to, from, view, weights, stream);
  } else {
    launch_grid(to, from, view, weights, stream);
  }
}

void convert_by(Form form, Tensor& out, const Tensor& image, const std::string& name) {
  const Weights& weights = find_weights(name);
  const auto device = image.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &handle));
  const auto stream = static_cast<cudaStream_t>(handle);
  switch (image.scalar_type()) {
    case ScalarType::Byte: return convert_typed<uint8_t>(form, out, image, weights, stream);
    case ScalarType::Float: return convert_typed<float>(form, out, image, weights, stream);
    case ScalarType::Double: return convert_typed<double>(form, out, image, weights, stream);
    case ScalarType::Half: return convert_typed<__half>(form, out, image, weights, stream);
    case ScalarType::BFloat16:
      return convert_typed<__nv_bfloat16>(form, out, image, weights, stream);
    default:
      STD_TORCH_CHECK(
          false, "dtype must be uint8 or a floating-point type, not ",
          torch::headeronly::toString(image.scalar_type()));
  }
}

}  // namespace

void convert(Tensor& out, const Tensor& image, const std::string& weights) {
  convert_by(Form::kBest, out, image, weights);
}

void convert_by_grid(Tensor& out, const Tensor& image, const std::string& weights) {
  convert_by(Form::kGrid, out, image, weights);
}

}  // namespace img2gray::cuda
