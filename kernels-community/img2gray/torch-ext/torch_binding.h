// The functions behind the ops: adapters from an op's signature to a backend's `run`.
#pragma once

#include "../csrc/check_image.h"
#include "../csrc/cpu/cpu_img2gray.h"
#if defined(CUDA_KERNEL)
#include "../csrc/cuda/cuda_img2gray.h"
#endif

namespace img2gray {

// Fills `out` (H, W) or (N, H, W) from `image` (H, W, 3) or (N, H, W, 3) with any strides.
template <auto run>
void fill(Tensor& out, const Tensor& image, int64_t weights) {
  const TensorFacts from(image);
  const Element element = element_of(from);
  const ImageView view = view_image(from, false);
  check_out(TensorFacts(out), from, view);
  run({image.const_data_ptr(), out.mutable_data_ptr(), view, element, weights_of(weights),
       from.device});
}

// The same into a new tensor.
template <auto run>
Tensor value(const Tensor& image, int64_t weights, bool channels_first) {
  const TensorFacts from(image);
  const Element element = element_of(from);
  const ImageView view = view_image(from, channels_first);
  const Weights& chosen = weights_of(weights);
  Tensor gray = make_gray(from, view);
  run({image.const_data_ptr(), gray.mutable_data_ptr(), view, element, chosen, from.device});
  return gray;
}

}  // namespace img2gray
