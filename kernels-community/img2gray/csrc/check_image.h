// What a call may be: checks the tensors of an op and describes what is to be done with them.
#pragma once

#include <array>
#include <cstdint>

#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/headeronly/util/Exception.h>

#include "gray_formula.h"
#include "image_view.h"
#include "tensor_facts.h"

namespace img2gray {

// Grey from `image`, whose pixels `view` finds, to the dense `gray`.
struct Conversion {
  const void* image;
  void* gray;
  ImageView view;
  Element element;
  Weights weights;
  int32_t device;
};

inline Element element_of(const TensorFacts& image) {
  if (image.dtype == aoti_torch_dtype_uint8()) return Element::kByte;
  if (image.dtype == aoti_torch_dtype_float32()) return Element::kFloat;
  if (image.dtype == aoti_torch_dtype_float16()) return Element::kHalf;
  if (image.dtype == aoti_torch_dtype_bfloat16()) return Element::kBFloat16;
  if (image.dtype == aoti_torch_dtype_float64()) return Element::kDouble;
  using torch::headeronly::ScalarType;
  const auto dtype =
      torch::stable::detail::to<ScalarType>(torch::stable::detail::from(image.dtype));
  STD_TORCH_CHECK(
      false, "dtype must be uint8 or a floating-point type, not ",
      torch::headeronly::toString(dtype));
}

// By number, since torch's stable interface (2.13) loses the memory of every string that an op is given.
inline const Weights& weights_of(int64_t number) {
  static constexpr Weights kAll[] = {kDefaultWeights, kBt601Weights, kBt709Weights};
  STD_TORCH_CHECK(
      number >= 0 && number < 3, "weights must be 0 (default), 1 (bt601) or 2 (bt709), not ",
      number);
  return kAll[number];
}

// The pixels of (H, W, 3) or (N, H, W, 3), or of (3, H, W) or (N, 3, H, W).
inline ImageView view_image(const TensorFacts& image, bool channels_first) {
  const int64_t first = image.dim - 3;
  STD_TORCH_CHECK(
      first == 0 || first == 1, "image must have three dimensions, or four for a batch");
  const int64_t channels = channels_first ? first : first + 2;
  const int64_t rows = channels_first ? first + 1 : first;
  STD_TORCH_CHECK(
      image.sizes[channels] == 3, "the ", channels_first ? "third last" : "last",
      " dimension of image must have size 3");
  return {
      first == 1 ? image.sizes[0] : 1, image.sizes[rows],       image.sizes[rows + 1],
      first == 1 ? image.strides[0] : 0, image.strides[rows], image.strides[rows + 1],
      image.strides[channels]};
}

inline void check_out(const TensorFacts& out, const TensorFacts& image, const ImageView& view) {
  STD_TORCH_CHECK(out.dim == image.dim - 1, "out must have one dimension less than image");
  const std::array<int64_t, 3> sizes = {view.images, view.height, view.width};
  int64_t dense = 1;
  bool contiguous = true;
  for (int64_t i = out.dim - 1; i >= 0; --i) {
    const int64_t size = sizes[i + 3 - out.dim];
    STD_TORCH_CHECK(
        out.sizes[i] == size, "dimension ", i, ": out has ", out.sizes[i], ", image has ", size);
    contiguous &= size == 1 || out.strides[i] == dense;
    dense *= size;
  }
  STD_TORCH_CHECK(out.dtype == image.dtype, "out and image differ in dtype");
  STD_TORCH_CHECK(
      out.device_type == image.device_type && out.device == image.device,
      "out and image are on different devices");
  STD_TORCH_CHECK(contiguous || dense == 0, "out must be contiguous");
}

// A contiguous (H, W), or (N, H, W) for a batch. Straight from the allocator: for a small picture, a
// call by way of the dispatcher would take longer than all that follows.
inline Tensor make_gray(const TensorFacts& image, const ImageView& view) {
  const auto at_least_one = [](int64_t size) { return size > 1 ? size : 1; };
  const std::array<int64_t, 3> sizes = {view.images, view.height, view.width};
  const int64_t row = at_least_one(view.width);
  const std::array<int64_t, 3> strides = {row * at_least_one(view.height), row, 1};
  const int64_t dim = image.dim - 1;
  AtenTensorHandle made = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      dim, sizes.data() + 3 - dim, strides.data() + 3 - dim, image.dtype, image.device_type,
      image.device, &made));
  return Tensor(made);
}

}  // namespace img2gray
