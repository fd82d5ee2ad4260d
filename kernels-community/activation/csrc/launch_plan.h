// How a call looks in memory: checks the two tensors of an op and reduces them to rows.
#pragma once

#include <cstdint>
#include <optional>

#include <torch/csrc/stable/ops.h>

#include "tensor_facts.h"

namespace activation {

// A gated op reads a row of 2 * cols values and writes one of cols.
enum class Form { kUnary, kGated };

// `rows` rows of `cols` outputs each. Strides count elements. Row r of the output begins at
// out + r * out_stride, that of the input at input + r * in_stride; within a row both are dense.
// Hidden, because torch's Tensor is.
struct __attribute__((visibility("hidden"))) LaunchPlan {
  const void* input;
  void* out;
  int64_t rows;
  int64_t cols;
  int64_t in_stride;
  int64_t out_stride;
  Element element;
  int32_t device;
  std::optional<Tensor> dense_input = {};  // what `input` points into, if that is a copy
  std::optional<Tensor> dense_out = {};    // likewise: copy it into the caller's tensor afterwards
};

inline bool have_equal_strides(const TensorFacts& a, const TensorFacts& b) {
  for (int64_t i = 0; i < a.dim; ++i) {
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

// The distance between rows, if the leading dimensions are one regular sequence of dense rows.
inline std::optional<int64_t> find_row_stride(const TensorFacts& tensor) {
  const int64_t last = tensor.dim - 1;
  if (last < 0) return 1;
  if (tensor.sizes[last] > 1 && tensor.strides[last] != 1) return std::nullopt;
  int64_t row_stride = tensor.sizes[last];
  int64_t rows = 1;
  for (int64_t i = last - 1; i >= 0; --i) {
    if (tensor.sizes[i] == 1) continue;
    if (rows == 1) {
      row_stride = tensor.strides[i];
    } else if (tensor.strides[i] != row_stride * rows) {
      return std::nullopt;
    }
    rows *= tensor.sizes[i];
  }
  return row_stride;
}

// The Python wrapper explains such mistakes better; this keeps a direct caller of the op from
// reading or writing foreign memory.
inline void check_arguments(const TensorFacts& out, const TensorFacts& input, Form form) {
  check_alike(out, input, "out");
  STD_TORCH_CHECK(
      form == Form::kUnary || input.dim > 0, "input has no last dimension to split");
  for (int64_t i = 0; i < out.dim; ++i) {
    const int64_t size = out.sizes[i];
    const int64_t expected = form == Form::kGated && i + 1 == out.dim ? 2 * size : size;
    STD_TORCH_CHECK(
        input.sizes[i] == expected, "dimension ", i, ": out has ", size, ", so input must have ",
        expected, ", and has ", input.sizes[i]);
    STD_TORCH_CHECK(
        size <= 1 || out.strides[i] != 0, "dimension ", i,
        ": out is expanded, its elements share memory; pass a tensor of its own, such as ",
        "out.contiguous()");
  }
}

// Points `plan` at the input's rows, or at those of a dense copy.
inline void plan_input(LaunchPlan& plan, const Tensor& input, const TensorFacts& facts) {
  if (const auto stride = find_row_stride(facts)) {
    plan.in_stride = *stride;
    plan.input = input.const_data_ptr();
  } else {
    plan.in_stride = facts.last_size();
    plan.dense_input = torch::stable::contiguous(input);
    plan.input = plan.dense_input->const_data_ptr();
  }
}

// The same for the output.
inline void plan_output(LaunchPlan& plan, const Tensor& out, const TensorFacts& facts) {
  const auto stride = find_row_stride(facts);
  // Overlapping rows (made by as_strided) are left to torch: its copy refuses them.
  if (stride && (plan.rows <= 1 || *stride >= plan.cols)) {
    plan.out_stride = *stride;
    plan.out = out.mutable_data_ptr();
  } else {
    plan.out_stride = plan.cols;
    plan.dense_out = torch::stable::contiguous(out);
    plan.out = plan.dense_out->mutable_data_ptr();
  }
}

// Checks the arguments and finds the cheapest way through them: one long row, strided rows,
// or, for any other layout, a dense copy.
inline LaunchPlan plan_launch(const Tensor& out, const Tensor& input, Form form) {
  const TensorFacts to(out);
  const TensorFacts from(input);
  const Element element = element_of(from);
  check_arguments(to, from, form);
  const int64_t total = to.numel();
  if (form == Form::kUnary && ((to.is_contiguous() && from.is_contiguous()) ||
                               (have_equal_strides(to, from) && to.is_dense()))) {
    return {input.const_data_ptr(), out.mutable_data_ptr(), 1,          total, total, total,
            element,                from.device};
  }
  const int64_t cols = to.last_size();
  LaunchPlan plan = {
      nullptr, nullptr, cols == 0 ? 0 : total / cols, cols, cols, cols, element, from.device};
  plan_input(plan, input, from);
  plan_output(plan, out, to);
  return plan;
}

// Ends a launch: brings the result home if the plan worked on a temporary.
inline void finish_launch(const LaunchPlan& plan, Tensor& out) {
  if (plan.dense_out) torch::stable::copy_(out, *plan.dense_out);
}

}  // namespace activation
