// What a call may be: checks the tensors of the op and reduces them to rows of pixels.
#pragma once

#include <cstdint>
#include <string>

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include "gray_formula.h"
#include "image_view.h"

namespace img2gray {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Checks the arguments and describes them. With `may_merge`, images without gaps become one image
// with one row, so that narrow ones are as fast as wide ones.
inline ImageView view_image(const Tensor& out, const Tensor& image, bool may_merge = true) {
  const int64_t dims = image.dim();
  STD_TORCH_CHECK(dims == 3 || dims == 4, "image must be (H, W, 3) or (N, H, W, 3)");
  STD_TORCH_CHECK(image.size(dims - 1) == 3, "the last dimension of image must have size 3");
  STD_TORCH_CHECK(out.dim() == dims - 1, "out must have one dimension less than image");
  for (int64_t i = 0; i < dims - 1; ++i) {
    STD_TORCH_CHECK(
        out.size(i) == image.size(i), "dimension ", i, ": out has ", out.size(i), ", image has ",
        image.size(i));
  }
  STD_TORCH_CHECK(out.scalar_type() == image.scalar_type(), "out and image differ in dtype");
  STD_TORCH_CHECK(out.device() == image.device(), "out and image are on different devices");
  STD_TORCH_CHECK(out.is_contiguous(), "out must be contiguous");

  const bool batched = dims == 4;
  ImageView view = {
      batched ? image.size(0) : 1,       image.size(dims - 3),   image.size(dims - 2),
      batched ? image.stride(0) : 0,     image.stride(dims - 3), image.stride(dims - 2),
      image.stride(dims - 1)};
  const bool rows_follow =
      view.height <= 1 || view.row_stride == view.width * view.pixel_stride;
  const bool images_follow =
      view.images <= 1 || view.image_stride == view.height * view.width * view.pixel_stride;
  if (may_merge && rows_follow && images_follow) {
    view.width = view.pixels();
    view.images = view.height = 1;
  }
  return view;
}

inline const Weights& find_weights(const std::string& name) {
  if (name == "default") return kDefaultWeights;
  if (name == "bt601") return kBt601Weights;
  STD_TORCH_CHECK(
      name == "bt709", "weights must be 'default', 'bt601' or 'bt709', not '", name, "'");
  return kBt709Weights;
}

}  // namespace img2gray
