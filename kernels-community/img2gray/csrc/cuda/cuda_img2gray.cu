// Chooses between three kernels: the packed ones for dense rows, of which one is for a single row, and a thread a
// pixel in a 2D grid for every layout.
#include <cstdint>

#include "../image_view.h"
#include "grid_img2gray.cuh"
#include "launch.h"
#include "packed_img2gray.cuh"

namespace img2gray::cuda {
namespace {

// Blocks of so many warps, one tile each, were the fastest or nearly so at every size on an H200.
template <class T>
constexpr int kWarps = sizeof(T) >= 4 ? 2 : 4;

// The same for one row, where the choice hardly matters (docs/kernels/img2gray.md).
template <class T>
constexpr int kRowThreads = sizeof(T) >= 4 ? 64 : 128;

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

// One row of so few packs that their places count in 32 bits.
template <class T>
bool is_short_row(const ImageView& view) {
  return view.rows() == 1 && view.width / kPack<T> < int64_t{1} << 30;
}

template <class T>
void launch_row(
    T* out, const T* in, const ImageView& view, const Weights& weights, cudaStream_t stream) {
  const auto packs = static_cast<uint32_t>(view.width / kPack<T>);
  const auto all = static_cast<uint32_t>(packs + view.width % kPack<T>);
  constexpr int kBlock = kRowThreads<T>;
  const auto kernel =
      view.is_interleaved() ? row_kernel<T, true, kBlock> : row_kernel<T, false, kBlock>;
  kernel<<<(all + kBlock - 1) / kBlock, kBlock, 0, stream>>>(
      out, in, packs, all, view.channel_stride, factors_of<T>(weights));
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
  constexpr int kBlock = kWarps<T>;
  const unsigned blocks = (all_tiles + kBlock - 1) / kBlock;
  const auto kernel =
      view.is_interleaved() ? packed_kernel<T, true, kBlock> : packed_kernel<T, false, kBlock>;
  kernel<<<blocks, kWarp * kBlock, 0, stream>>>(out, in, rows, factors_of<T>(weights));
}

template <class T>
void launch_grid(
    T* out, const T* in, const ImageView& view, const Weights& weights, cudaStream_t stream) {
  constexpr int64_t kMaxGridRows = 65535;
  const dim3 block = view.rows() == 1 ? dim3(256) : dim3(32, 8);
  const int64_t blocks_high = (view.rows() + block.y - 1) / block.y;
  const dim3 grid(
      static_cast<unsigned>((view.width + block.x - 1) / block.x),
      static_cast<unsigned>(blocks_high < kMaxGridRows ? blocks_high : kMaxGridRows));
  grid_kernel<<<grid, block, 0, stream>>>(out, in, view, factors_of<T>(weights));
}

template <class T>
void launch_typed(
    Form form, void* out, const void* image, const ImageView& view, const Weights& weights,
    cudaStream_t stream) {
  T* to = static_cast<T*>(out);
  const T* from = static_cast<const T*>(image);
  const bool fits = form == Form::kBest && fits_packs(to, from, view);
  if (fits && is_short_row<T>(view)) {
    launch_row(to, from, view, weights, stream);
  } else if (fits) {
    launch_packed(to, from, view, weights, stream);
  } else {
    launch_grid(to, from, view, weights, stream);
  }
}

}  // namespace

cudaError_t launch_convert(
    Form form, Element element, void* out, const void* image, const ImageView& view,
    const Weights& weights, cudaStream_t stream) {
  switch (element) {
    case Element::kByte: launch_typed<uint8_t>(form, out, image, view, weights, stream); break;
    case Element::kFloat: launch_typed<float>(form, out, image, view, weights, stream); break;
    case Element::kDouble: launch_typed<double>(form, out, image, view, weights, stream); break;
    case Element::kHalf: launch_typed<__half>(form, out, image, view, weights, stream); break;
    case Element::kBFloat16:
      launch_typed<__nv_bfloat16>(form, out, image, view, weights, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace img2gray::cuda
