// Spreads the pixels over torch's threads, and each thread's share over rows.
#include "cpu_img2gray.h"

#include <algorithm>
#include <type_traits>

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

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
void run_typed(const Conversion& conversion) {
  const ImageView view = conversion.view.merged();
  if (view.pixels() == 0) return;
  T* to = static_cast<T*>(conversion.gray);
  const T* from = static_cast<const T*>(conversion.image);
  torch::stable::parallel_for(
      0, view.pixels(), kPixelsPerThread, [&](int64_t begin, int64_t end) {
        int64_t row = begin / view.width;
        int64_t x = begin % view.width;
        while (begin < end) {
          const int64_t count = std::min(view.width - x, end - begin);
          gray_row(
              to + begin, from + view.row_offset(row) + x * view.pixel_stride, count, view,
              conversion.weights);
          begin += count;
          ++row;
          x = 0;
        }
      });
}

}  // namespace

void run(const Conversion& conversion) {
  switch (conversion.element) {
    case Element::kByte: return run_typed<uint8_t>(conversion);
    case Element::kFloat: return run_typed<float>(conversion);
    case Element::kDouble: return run_typed<double>(conversion);
    case Element::kHalf: return run_typed<torch::headeronly::Half>(conversion);
    case Element::kBFloat16: return run_typed<torch::headeronly::BFloat16>(conversion);
  }
}

}  // namespace img2gray::cpu
