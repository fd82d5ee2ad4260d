// How a call looks in memory: checks the two tensors of an op and reduces them to rows.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

namespace activation {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A gated op reads a row of 2 * cols values and writes one of cols.
enum class Form { kUnary, kGated };

// `rows` rows of `cols` outputs each. Strides count elements. Row r of the output begins at
// out + r * out_stride, that of the input at input + r * in_stride; within a row both are dense.
// Hidden, because torch's Tensor is.
struct __attribute__((visibility("hidden"))) LaunchPlan {
  Tensor out;
  Tensor input;
  int64_t rows;
  int64_t cols;
  int64_t out_stride;
  int64_t in_stride;
  bool out_is_copy;  // `out` is a temporary: copy it into the caller's tensor afterwards
};

// Whether the elements fill their memory without holes or overlap, in any order of dimensions.
inline bool is_dense(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  int64_t expected = 1;
  // Every pass finds the dimension whose stride is the size of all those inside it.
  for (;;) {
    bool found = false;
    bool done = true;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 1 || strides[i] < expected) continue;
      done = false;
      if (strides[i] == expected) {
        expected *= sizes[i];
        found = true;
        break;
      }
    }
    if (done) return expected == tensor.numel();
    if (!found) return false;
  }
}

inline bool have_equal_strides(const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// The distance between rows, if the leading dimensions are one regular sequence of dense rows.
inline std::optional<int64_t> find_row_stride(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  if (last < 0) return 1;
  if (tensor.size(last) > 1 && tensor.stride(last) != 1) return std::nullopt;
  int64_t row_stride = tensor.size(last);
  int64_t rows = 1;
  for (int64_t i = last - 1; i >= 0; --i) {
    if (tensor.size(i) == 1) continue;
    if (rows == 1) {
      row_stride = tensor.stride(i);
    } else if (tensor.stride(i) != row_stride * rows) {
      return std::nullopt;
    }
    rows *= tensor.size(i);
  }
  return row_stride;
}

// The Python wrapper explains such mistakes better; this keeps a direct caller of the op from
// reading or writing foreign memory.
inline void check_arguments(const Tensor& out, const Tensor& input, Form form) {
  const ScalarType dtype = input.scalar_type();
  STD_TORCH_CHECK(
      dtype == ScalarType::Float || dtype == ScalarType::BFloat16 || dtype == ScalarType::Half,
      "dtype must be float32, bfloat16 or float16, not ", torch::headeronly::toString(dtype));
  STD_TORCH_CHECK(out.scalar_type() == dtype, "out and input differ in dtype");
  STD_TORCH_CHECK(out.device() == input.device(), "out and input are on different devices");
  const auto out_sizes = out.sizes();
  const auto in_sizes = input.sizes();
  const auto out_strides = out.strides();
  STD_TORCH_CHECK(
      out_sizes.size() == in_sizes.size(), "out and input differ in their number of dimensions");
  STD_TORCH_CHECK(
      form == Form::kUnary || !in_sizes.empty(), "input has no last dimension to split");
  for (size_t i = 0; i < out_sizes.size(); ++i) {
    const int64_t factor = form == Form::kGated && i + 1 == out_sizes.size() ? 2 : 1;
    STD_TORCH_CHECK(
        in_sizes[i] == factor * out_sizes[i], "dimension ", i, ": out has ", out_sizes[i],
        ", so input must have ", factor * out_sizes[i], ", and has ", in_sizes[i]);
    STD_TORCH_CHECK(
        out_sizes[i] <= 1 || out_strides[i] != 0, "dimension ", i,
        ": out is expanded, its elements share memory; pass a tensor of its own, such as ",
        "out.contiguous()");
  }
}

// Checks the arguments and finds the cheapest way through them: one long row, strided rows,
// or, for any other layout, a dense copy.
inline LaunchPlan plan_launch(const Tensor& out, const Tensor& input, Form form) {
  check_arguments(out, input, form);
  const int64_t total = out.numel();
  const bool contiguous = out.is_contiguous() && input.is_contiguous();
  if (form == Form::kUnary &&
      (contiguous || (have_equal_strides(out, input) && is_dense(out)))) {
    return {out, input, 1, total, total, total, false};
  }
  const int64_t cols = out.dim() == 0 ? 1 : out.size(out.dim() - 1);
  const int64_t rows = cols == 0 ? 0 : total / cols;
  const int64_t in_cols = form == Form::kGated ? 2 * cols : cols;

  const auto in_stride = find_row_stride(input);
  Tensor source = in_stride ? input : torch::stable::contiguous(input);

  auto out_stride = find_row_stride(out);
  // Overlapping rows (made by as_strided) are left to torch: its copy refuses them.
  if (out_stride && rows > 1 && *out_stride < cols) out_stride = std::nullopt;
  Tensor target = out_stride ? out : torch::stable::contiguous(out);

  return {std::move(target), std::move(source), rows,          cols,
          out_stride.value_or(cols), in_stride.value_or(in_cols), !out_stride};
}

// Ends a launch: brings the result home if the plan worked on a temporary.
inline void finish_launch(const LaunchPlan& plan, Tensor& out) {
  if (plan.out_is_copy) torch::stable::copy_(out, plan.out);
}

}  // namespace activation
