#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <c10/util/Exception.h>

#include <string>

// Sees an exception of torch's own class that torch throws, and throws one for Python to see.
std::string describe_mismatch(const at::Tensor& a, const at::Tensor& b) {
  try {
    at::matmul(a, b);
  } catch (const c10::Error& err) {
    return std::string("caught c10::Error");
  }
  TORCH_CHECK_INDEX(false, "the product exists");
}
