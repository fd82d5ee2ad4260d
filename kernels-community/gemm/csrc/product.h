// What a call asks for: checks the five tensors of an op and reduces them to sizes and strides.
#pragma once

#include <cstdint>
#include <limits>

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

namespace gemm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t kScaleBlock = 128;  // of K for both operands, and of N for B

constexpr int64_t count_blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// A matrix in memory, whichever way it lies. Strides count elements.
struct View {
  const void* data;
  int64_t row_stride;
  int64_t k_stride;
};

// C (m x n) = A (m x k) B (n x k)^T. The scales of A are one for each row and block of K, those of
// B one for each block of N and block of K; they step by blocks.
struct Product {
  int64_t m;
  int64_t n;
  int64_t k;
  View a;
  View b;
  View a_scale;
  View b_scale;
  int64_t k_blocks() const { return k / kScaleBlock; }
};

namespace checks {

// The dimensions of an operand's rows and of K: (row, K) of the native form, (K, row) otherwise.
struct Axes {
  int row;
  int k;
};
constexpr Axes axes(bool nt) { return nt ? Axes{0, 1} : Axes{1, 0}; }

inline int32_t device_type(const Tensor& tensor) {
  int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  return type;
}

inline View view(const Tensor& tensor, Axes axes) {
  return {tensor.const_data_ptr(), tensor.stride(axes.row), tensor.stride(axes.k)};
}

inline void require_matrix(const Tensor& tensor, const char* name) {
  STD_TORCH_CHECK(tensor.dim() == 2, name, " must have two dimensions; found ", tensor.dim());
}

inline void require_place(const Tensor& tensor, const Tensor& like, const char* name) {
  STD_TORCH_CHECK(
      device_type(tensor) == device_type(like) &&
          tensor.get_device_index() == like.get_device_index(),
      name, " must be on the device of a");
}

inline void require_scale(
    const Tensor& scale, const Tensor& like, Axes axes, int64_t rows, int64_t k_blocks,
    const char* name) {
  require_matrix(scale, name);
  require_place(scale, like, name);
  STD_TORCH_CHECK(
      scale.scalar_type() == ScalarType::Float, name, " must be float32; found ",
      torch::headeronly::toString(scale.scalar_type()));
  STD_TORCH_CHECK(
      scale.size(axes.k) == k_blocks && scale.size(axes.row) == rows, name, " must have ", k_blocks,
      " blocks of K and ", rows, " along the other dimension; found ", scale.size(axes.k), " and ",
      scale.size(axes.row));
}

}  // namespace checks

// Checks everything that memory safety needs. The Python side explains the same faults better.
inline Product read_product(
    const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_scale,
    const Tensor& b_scale, bool nt) {
  using namespace checks;
  require_matrix(a, "a");
  require_matrix(b, "b");
  require_matrix(c, "c");
  require_place(b, a, "b");
  require_place(c, a, "c");
  const Axes at = axes(nt);
  Product product;
  product.m = a.size(at.row);
  product.n = b.size(at.row);
  product.k = a.size(at.k);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 1024;
  STD_TORCH_CHECK(
      product.m <= kMost && product.n <= kMost && product.k <= kMost,
      "every dimension must be below 2^31 - 1024");
  STD_TORCH_CHECK(
      b.size(at.k) == product.k, "a and b must agree in K; found ", product.k, " and ",
      b.size(at.k));
  STD_TORCH_CHECK(product.k % kScaleBlock == 0, "K must be a multiple of 128; found ", product.k);
  STD_TORCH_CHECK(product.n % 8 == 0, "N must be a multiple of 8; found ", product.n);
  STD_TORCH_CHECK(
      a.scalar_type() == b.scalar_type(), "a and b must have one dtype; found ",
      torch::headeronly::toString(a.scalar_type()), " and ",
      torch::headeronly::toString(b.scalar_type()));
  require_scale(a_scale, a, at, product.m, product.k_blocks(), "a_scale");
  require_scale(
      b_scale, a, at, count_blocks(product.n, kScaleBlock), product.k_blocks(), "b_scale");
  STD_TORCH_CHECK(
      c.scalar_type() == ScalarType::BFloat16, "c must be bfloat16; found ",
      torch::headeronly::toString(c.scalar_type()));
  STD_TORCH_CHECK(
      c.size(0) == product.m && c.size(1) == product.n, "c must be ", product.m, " x ", product.n,
      "; found ", c.size(0), " x ", c.size(1));
  product.a = view(a, at);
  product.b = view(b, at);
  product.a_scale = view(a_scale, at);
  product.b_scale = view(b_scale, at);
  return product;
}

// A fresh C for these operands.
inline Tensor make_result(const Tensor& a, const Tensor& b, bool nt) {
  checks::require_matrix(a, "a");
  checks::require_matrix(b, "b");
  const checks::Axes at = checks::axes(nt);
  const int64_t sizes[] = {a.size(at.row), b.size(at.row)};
  return torch::stable::new_empty(a, {sizes, 2}, ScalarType::BFloat16);
}

}  // namespace gemm
