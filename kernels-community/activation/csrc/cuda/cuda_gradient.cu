// The backward ops: from the gradient of the result and the input, the gradient of the input.
#include "cuda_activation.h"

#include <cstdint>

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "current_stream.h"
#include "stream.cuh"

namespace activation::cuda {
namespace {

using torch::stable::Tensor;

// in: the gradient of the result, x.
template <Activation kind>
struct UnaryGradient {
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 1;

  template <class T>
  static __device__ void apply(const float (&in)[2], float threshold, float (&out)[1]) {
    out[0] = in[0] * tangent<kind, T>(in[1], threshold).slope;
  }
};

// in: the gradient of the product, the activated half, the other half; out: the halves' gradients.
template <Activation kind>
struct GatedGradient {
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 2;

  template <class T>
  static __device__ void apply(const float (&in)[3], float threshold, float (&out)[2]) {
    const Tangent at = tangent<kind, T>(in[1], threshold);
    out[0] = in[0] * in[2] * at.slope;
    out[1] = in[0] * at.value;
  }
};

void check_gradient(const Tensor& grad_input, const Tensor& grad, const Tensor& input, int halves) {
  const auto last = input.dim() - 1;
  STD_TORCH_CHECK(
      grad.scalar_type() == input.scalar_type() && grad_input.scalar_type() == input.scalar_type(),
      "grad_input, grad_output and input differ in dtype");
  STD_TORCH_CHECK(
      grad.device() == input.device() && grad_input.device() == input.device(),
      "grad_input, grad_output and input are on different devices");
  STD_TORCH_CHECK(
      grad_input.dim() == input.dim() && grad.dim() == input.dim() && (halves == 1 || last >= 0),
      "grad_input, grad_output and input differ in their number of dimensions");
  for (int64_t i = 0; i <= last; ++i) {
    const int64_t factor = i == last ? halves : 1;
    STD_TORCH_CHECK(
        grad_input.size(i) == input.size(i) && input.size(i) == factor * grad.size(i),
        "dimension ", i, ": grad_input has ", grad_input.size(i), ", grad_output ", grad.size(i),
        ", input ", input.size(i));
  }
  STD_TORCH_CHECK(grad_input.is_contiguous(), "grad_input must be contiguous");
}

Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

template <class T, Activation kind>
void run_unary(Tensor& grad_input, const Tensor& grad, const Tensor& input, cudaStream_t stream) {
  const int64_t count = input.numel();
  const Streams<T, 2, 1> streams = {
      {static_cast<const T*>(grad.const_data_ptr()),
       static_cast<const T*>(input.const_data_ptr())},
      {static_cast<T*>(grad_input.mutable_data_ptr())},
      {count, count},
      {count},
      0.0f};
  run_streams<UnaryGradient<kind>, T>(streams, 1, count, stream);
}

template <class T, Activation kind>
void run_gated(
    Gate gate, Tensor& grad_input, const Tensor& grad, const Tensor& input, float threshold,
    cudaStream_t stream) {
  const int64_t cols = grad.size(grad.dim() - 1);
  const T* in = static_cast<const T*>(input.const_data_ptr());
  T* out = static_cast<T*>(grad_input.mutable_data_ptr());
  const int64_t activated = gate == Gate::kFirstHalf ? 0 : cols;
  const int64_t other = cols - activated;
  const Streams<T, 3, 2> streams = {
      {static_cast<const T*>(grad.const_data_ptr()), in + activated, in + other},
      {out + activated, out + other},
      {cols, 2 * cols, 2 * cols},
      {2 * cols, 2 * cols},
      threshold};
  run_streams<GatedGradient<kind>, T>(
      streams, cols == 0 ? 0 : grad.numel() / cols, cols, stream);
}

}  // namespace

void unary_gradient(
    Activation kind, Tensor& grad_input, const Tensor& grad_output, const Tensor& input) {
  check_gradient(grad_input, grad_output, input, 1);
  const CurrentStream stream(input);
  const Tensor grad = dense(grad_output);
  const Tensor x = dense(input);
  with_dtype(input, [&]<class T>() {
    switch (kind) {
      case Activation::kGelu:
        return run_unary<T, Activation::kGelu>(grad_input, grad, x, stream);
      case Activation::kGeluTanh:
        return run_unary<T, Activation::kGeluTanh>(grad_input, grad, x, stream);
      case Activation::kGeluQuick:
        return run_unary<T, Activation::kGeluQuick>(grad_input, grad, x, stream);
      case Activation::kSilu:
        return run_unary<T, Activation::kSilu>(grad_input, grad, x, stream);
      case Activation::kFatrelu: STD_TORCH_CHECK(false, "fatrelu has no unary op");
    }
  });
}

void gated_gradient(
    Activation kind, Gate gate, Tensor& grad_input, const Tensor& grad_output,
    const Tensor& input, double threshold) {
  check_gradient(grad_input, grad_output, input, 2);
  const CurrentStream stream(input);
  const Tensor grad = dense(grad_output);
  const Tensor x = dense(input);
  const float cut = static_cast<float>(threshold);
  with_dtype(input, [&]<class T>() {
    switch (kind) {
      case Activation::kGelu:
        return run_gated<T, Activation::kGelu>(gate, grad_input, grad, x, cut, stream);
      case Activation::kGeluTanh:
        return run_gated<T, Activation::kGeluTanh>(gate, grad_input, grad, x, cut, stream);
      case Activation::kSilu:
        return run_gated<T, Activation::kSilu>(gate, grad_input, grad, x, cut, stream);
      case Activation::kFatrelu:
        return run_gated<T, Activation::kFatrelu>(gate, grad_input, grad, x, cut, stream);
      case Activation::kGeluQuick: STD_TORCH_CHECK(false, "gelu_quick has no gated op");
    }
  });
}

}  // namespace activation::cuda
