// The ops on tensors: checks them, makes their results, and hands plain memory to the launches.
#include "norm_ops.h"

#include <array>
#include <cstdint>
#include <utility>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "current_stream.h"
#include "norm_calls.h"

namespace layer_norm::cuda {
namespace {

using torch::headeronly::ScalarType;
using Optional = std::optional<Tensor>;

// A tensor as rows: dense ones, `stride` elements apart.
struct __attribute__((visibility("hidden"))) Rows {
  Tensor tensor;
  int64_t stride;
};

Element element_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return Element::kFloat;
    case ScalarType::BFloat16: return Element::kBFloat16;
    case ScalarType::Half: return Element::kHalf;
    default:
      STD_TORCH_CHECK(
          false, "dtype must be float32, bfloat16 or float16, not ",
          torch::headeronly::toString(tensor.scalar_type()));
  }
}

// Whether a tensor beside x holds floats though x does not; it must else have the dtype of x.
bool is_wide(const char* name, const Tensor& tensor, const Tensor& x) {
  const auto dtype = tensor.scalar_type();
  STD_TORCH_CHECK(
      dtype == x.scalar_type() || dtype == ScalarType::Float, name,
      " must have the dtype of x or float32, not ", torch::headeronly::toString(dtype));
  return dtype != x.scalar_type();
}

int hidden_of(const Tensor& x) {
  STD_TORCH_CHECK(x.dim() > 0, "x must have a last dimension to normalise");
  const int64_t hidden = x.size(x.dim() - 1);
  STD_TORCH_CHECK(hidden <= INT32_MAX / 2, "rows of ", hidden, " elements are too long");
  return static_cast<int>(hidden);
}

void check_same_shape(const char* name, const Tensor& tensor, const Tensor& x) {
  STD_TORCH_CHECK(tensor.device() == x.device(), name, " must be on the device of x");
  STD_TORCH_CHECK(tensor.dim() == x.dim(), name, " must have the shape of x");
  for (int64_t i = 0; i < x.dim(); ++i) {
    STD_TORCH_CHECK(tensor.size(i) == x.size(i), name, " must have the shape of x");
  }
}

Optional dense_parameter(const char* name, Optional parameter, const Tensor& x, int hidden) {
  if (!parameter) return parameter;
  STD_TORCH_CHECK(parameter->device() == x.device(), name, " must be on the device of x");
  STD_TORCH_CHECK(
      parameter->dim() == 1 && parameter->size(0) == hidden, name,
      " must have one element for each of a row's ", hidden);
  return parameter->is_contiguous() ? parameter : torch::stable::contiguous(*parameter);
}

// The distance between rows, if the leading dimensions are one regular sequence of dense rows.
std::optional<int64_t> find_row_stride(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
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

Rows rows_of(const Tensor& tensor) {
  if (tensor.is_contiguous()) return {tensor, tensor.size(tensor.dim() - 1)};
  if (const auto stride = find_row_stride(tensor)) return {tensor, *stride};
  return {torch::stable::contiguous(tensor), tensor.size(tensor.dim() - 1)};
}

// A dense tensor on the device of `like`; torch::stable::empty takes longer than the launch.
Tensor make(const Tensor& like, ScalarType dtype, const int64_t* sizes, int64_t dims) {
  constexpr int64_t kMost = 64;
  std::array<int64_t, kMost> strides;
  STD_TORCH_CHECK(dims <= kMost, "at most ", kMost, " dimensions, not ", dims);
  int64_t stride = 1;
  for (int64_t i = dims - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  AtenTensorHandle handle = nullptr;
  const auto spelt = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      dims, sizes, strides.data(), spelt, aoti_torch_device_type_cuda(), like.get_device_index(),
      &handle));
  return Tensor(handle);
}

Tensor make_like(const Tensor& x, ScalarType dtype) {
  const auto sizes = x.sizes();
  return make(x, dtype, sizes.data(), static_cast<int64_t>(sizes.size()));
}

Tensor make_row(const Tensor& like, ScalarType dtype, int64_t size) {
  return make(like, dtype, &size, 1);
}

const void* memory_of(const Optional& tensor) {
  return tensor ? tensor->const_data_ptr() : nullptr;
}

bool has_wide_parameters(const Optional& weight, const Optional& bias, const Tensor& x) {
  const bool wide_weight = weight && is_wide("weight", *weight, x);
  const bool wide_bias = bias && is_wide("bias", *bias, x);
  STD_TORCH_CHECK(
      !weight || !bias || wide_weight == wide_bias, "weight and bias differ in dtype");
  return wide_weight || wide_bias;
}

}  // namespace

Tensor norm(
    const Tensor& x, Optional weight, Optional bias, double eps, bool is_rms) {
  const Element element = element_of(x);
  const int hidden = hidden_of(x);
  weight = dense_parameter("weight", std::move(weight), x, hidden);
  bias = dense_parameter("bias", std::move(bias), x, hidden);
  const bool wide_parameters = has_wide_parameters(weight, bias, x);
  const Rows rows = rows_of(x);
  Tensor y = make_like(x, x.scalar_type());
  if (hidden == 0) return y;
  const CurrentStream stream(x);
  const ForwardCall call = {
      rows.tensor.const_data_ptr(), nullptr, memory_of(weight), memory_of(bias),
      y.mutable_data_ptr(), nullptr, x.numel() / hidden, hidden, rows.stride, 0,
      static_cast<float>(eps), is_rms, element, wide_parameters, false, false};
  STD_CUDA_CHECK(launch_forward(call, choose_forward_form(call, device_of(x)), stream));
  return y;
}

std::tuple<Tensor, Tensor> add_norm(
    const Tensor& x, const Tensor& residual, Optional weight, Optional bias, double eps,
    bool is_rms, bool wide_sum) {
  const Element element = element_of(x);
  const int hidden = hidden_of(x);
  check_same_shape("residual", residual, x);
  weight = dense_parameter("weight", std::move(weight), x, hidden);
  bias = dense_parameter("bias", std::move(bias), x, hidden);
  const bool wide_parameters = has_wide_parameters(weight, bias, x);
  const bool wide_residual = is_wide("residual", residual, x);
  const Rows rows = rows_of(x);
  const Rows residual_rows = rows_of(residual);
  Tensor y = make_like(x, x.scalar_type());
  Tensor sum = make_like(x, wide_sum ? ScalarType::Float : x.scalar_type());
  if (hidden == 0) return {y, sum};
  const CurrentStream stream(x);
  const ForwardCall call = {
      rows.tensor.const_data_ptr(), residual_rows.tensor.const_data_ptr(), memory_of(weight),
      memory_of(bias), y.mutable_data_ptr(), sum.mutable_data_ptr(), x.numel() / hidden, hidden,
      rows.stride, residual_rows.stride, static_cast<float>(eps), is_rms, element,
      wide_parameters, wide_residual, wide_sum && element != Element::kFloat};
  STD_CUDA_CHECK(launch_forward(call, choose_forward_form(call, device_of(x)), stream));
  return {y, sum};
}

std::tuple<Tensor, Optional, Optional> norm_backward(
    const Tensor& h, Optional weight, const Tensor& dy, Optional dsum, double eps, bool is_rms,
    bool wants_dweight, bool wants_dbias) {
  const Element element = element_of(h);
  const int hidden = hidden_of(h);
  check_same_shape("dy", dy, h);
  STD_TORCH_CHECK(dy.scalar_type() == h.scalar_type(), "dy must have the dtype of h");
  if (dsum) {
    check_same_shape("dsum", *dsum, h);
    STD_TORCH_CHECK(dsum->scalar_type() == h.scalar_type(), "dsum must have the dtype of h");
  }
  weight = dense_parameter("weight", std::move(weight), h, hidden);
  const bool wide_parameters = has_wide_parameters(weight, std::nullopt, h);
  const Rows h_rows = rows_of(h);
  const Rows dy_rows = rows_of(dy);
  const std::optional<Rows> dsum_rows = dsum ? std::optional<Rows>(rows_of(*dsum)) : std::nullopt;
  const auto sum_dtype = wide_parameters ? ScalarType::Float : h.scalar_type();
  Tensor dh = make_like(h, h.scalar_type());
  Optional dweight;
  Optional dbias;
  if (wants_dweight) dweight = make_row(h, sum_dtype, hidden);
  if (wants_dbias) dbias = make_row(h, sum_dtype, hidden);
  if (hidden == 0) return {dh, dweight, dbias};
  const CurrentStream stream(h);
  const Device& device = device_of(h);
  BackwardCall call = {
      h_rows.tensor.const_data_ptr(), memory_of(weight), dy_rows.tensor.const_data_ptr(),
      dsum_rows ? dsum_rows->tensor.const_data_ptr() : nullptr, dh.mutable_data_ptr(),
      dweight ? dweight->mutable_data_ptr() : nullptr,
      dbias ? dbias->mutable_data_ptr() : nullptr, nullptr, nullptr, h.numel() / hidden,
      hidden, h_rows.stride, dy_rows.stride, dsum_rows ? dsum_rows->stride : 0,
      static_cast<float>(eps), is_rms, element, wide_parameters};
  const Form form = choose_backward_form(call, device);
  const int sharers = count_sharers(call, form, device);
  Optional scratch;
  if ((wants_dweight || wants_dbias) && call.rows > 0) {
    const int64_t shares = int64_t{wants_dbias ? 2 : 1} * sharers * hidden;
    scratch = make_row(h, ScalarType::Float, shares + (form.packs == 0 ? 2 * call.rows : 0));
    call.shares = static_cast<float*>(scratch->mutable_data_ptr());
    if (form.packs == 0) call.row_factors = call.shares + shares;
  }
  STD_CUDA_CHECK(launch_backward(call, form, sharers, stream));
  return {dh, dweight, dbias};
}

}  // namespace layer_norm::cuda
