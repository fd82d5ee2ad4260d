// Spreads the pixels over torch's threads, and each thread's share over rows.
#include "cpu_img2gray.h"

#include <algorithm>
#include <type_traits>

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "../check_image.h"
#include "gray_row.h"

namespace img2gray::cpu {
namespace {

constexpr int64_t kPixelsPerThread = 32768;

bool has_avx2() {
#if defined(__x86_64__)
  static const bool found = __builtin_cpu_supports("avx2");
  return found;
#else
  return false;
#endif
}

// One pixel after the other; what vectors leave over, and strides that have no vector form.
template <class T, class W, class Compute>
void gray_strided(
    T* out, const T* in, int64_t count, const ImageView& view, const W& weights, Compute) {
  for (int64_t i = 0; i < count; ++i) {
    const T* pixel = in + i * view.pixel_stride;
    out[i] = static_cast<T>(gray_of(
        weights, static_cast<Compute>(pixel[0]), static_cast<Compute>(pixel[view.channel_stride]),
        static_cast<Compute>(pixel[2 * view.channel_stride])));
  }
}

void gray_row(
    uint8_t* out, const uint8_t* in, int64_t count, const ImageView& view, const Weights& weights) {
  const FixedWeights fixed = to_fixed(weights);
  int64_t done = 0;
#if defined(__x86_64__)
  if (has_avx2() && view.is_interleaved()) {
    done = avx2::gray_interleaved(out, in, count, fixed);
  } else if (has_avx2() && view.is_planar()) {
    const uint8_t* green = in + view.channel_stride;
    done = avx2::gray_planar(out, in, green, green + view.channel_stride, count, fixed);
  }
#endif
  gray_strided(
      out + done, in + done * view.pixel_stride, count - done, view, fixed, uint8_t{});
}

template <class T>
void gray_row(T* out, const T* in, int64_t count, const ImageView& view, const Weights& weights) {
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  gray_strided(out, in, count, view, weights, Compute{});
}

template <class T>
void convert_typed(Tensor& out, const Tensor& image, const Weights& weights) {
  const ImageView view = view_image(out, image);
  if (view.pixels() == 0) return;
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const T* from = static_cast<const T*>(image.const_data_ptr());
  torch::stable::parallel_for(
      0, view.pixels(), kPixelsPerThread, [&](int64_t begin, int64_t end) {
        int64_t row = begin / view.width;
        int64_t x = begin % view.width;
        while (begin < end) {
          const int64_t count = std::min(view.width - x, end - begin);
          gray_row(
              to + begin, from + view.row_offset(row) + x * view.pixel_stride, count, view,
              weights);
          begin += count;
          ++row;
          x = 0;
        }
      });
}

}  // namespace

void convert(Tensor& out, const Tensor& image, const std::string& name) {
  const Weights& weights = find_weights(name);
  switch (image.scalar_type()) {
    case ScalarType::Byte: return convert_typed<uint8_t>(out, image, weights);
    case ScalarType::Float: return convert_typed<float>(out, image, weights);
    case ScalarType::Double: return convert_typed<double>(out, image, weights);
    case ScalarType::Half: return convert_typed<torch::headeronly::Half>(out, image, weights);
    case ScalarType::BFloat16:
      return convert_typed<torch::headeronly::BFloat16>(out, image, weights);
    default:
      STD_TORCH_CHECK(
          false, "dtype must be uint8 or a floating-point type, not ",
          torch::headeronly::toString(image.scalar_type()));
  }
}

}  // namespace img2gray::cpu
