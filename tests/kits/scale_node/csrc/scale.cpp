#include "scale.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

torch::stable::Tensor scale(torch::stable::Tensor x, double factor) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float, "scale: x must be float32");
  const torch::stable::Tensor from = torch::stable::contiguous(x);
  torch::stable::Tensor to = torch::stable::empty_like(from);
  const float* read = static_cast<const float*>(from.data_ptr());
  float* written = static_cast<float*>(to.data_ptr());
  for (int64_t at = 0; at < from.numel(); ++at) written[at] = static_cast<float>(read[at] * factor);
  return to;
}
