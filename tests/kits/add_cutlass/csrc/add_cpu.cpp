#include "add.h"

#include <torch/headeronly/util/Exception.h>

void add_one(torch::stable::Tensor& out, const torch::stable::Tensor& input) {
  STD_TORCH_CHECK(out.numel() == input.numel(), "add_one: out and input differ in size");
  const float* from = static_cast<const float*>(input.const_data_ptr());
  float* to = static_cast<float*>(out.mutable_data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) {
    to[i] = from[i] + 1.0f;
  }
}
