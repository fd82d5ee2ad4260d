// The backward ops: from the gradient of the result and the input, the gradient of the input.
#include <cstdint>

#include "choose.cuh"
#include "launch.h"
#include "stream.cuh"

namespace activation::cuda {
namespace {

// in: the gradient of the result, x.
template <Activation kind>
struct UnaryGradient {
  static constexpr bool kMostlyOneRow = true;
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
  static constexpr bool kMostlyOneRow = false;
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 2;

  template <class T>
  static __device__ void apply(const float (&in)[3], float threshold, float (&out)[2]) {
    const Tangent at = tangent<kind, T>(in[1], threshold);
    out[0] = in[0] * in[2] * at.slope;
    out[1] = in[0] * at.value;
  }
};

template <class T, Activation kind>
cudaError_t run_unary(const GradientRows& rows, cudaStream_t stream) {
  const int64_t cols = rows.cols;
  const Streams<T, 2, 1> streams = {
      {static_cast<const T*>(rows.grad_output), static_cast<const T*>(rows.input)},
      {static_cast<T*>(rows.grad_input)},
      {cols, cols},
      {cols},
      0.0f};
  return run_streams<UnaryGradient<kind>, T>(streams, rows.rows, cols, stream);
}

template <class T, Activation kind>
cudaError_t run_gated(
    const GradientRows& rows, Gate gate, float threshold, cudaStream_t stream) {
  const int64_t cols = rows.cols;
  const T* in = static_cast<const T*>(rows.input);
  T* out = static_cast<T*>(rows.grad_input);
  const int64_t activated = gate == Gate::kFirstHalf ? 0 : cols;
  const int64_t other = cols - activated;
  const Streams<T, 3, 2> streams = {
      {static_cast<const T*>(rows.grad_output), in + activated, in + other},
      {out + activated, out + other},
      {cols, 2 * cols, 2 * cols},
      {2 * cols, 2 * cols},
      threshold};
  return run_streams<GatedGradient<kind>, T>(streams, rows.rows, cols, stream);
}

}  // namespace

cudaError_t launch_unary_gradient(
    Activation kind, Element element, const GradientRows& rows, cudaStream_t stream) {
  return with_unary(kind, element, [&]<class T, Activation chosen>() {
    return run_unary<T, chosen>(rows, stream);
  });
}

cudaError_t launch_gated_gradient(
    Activation kind, Gate gate, Element element, const GradientRows& rows, float threshold,
    cudaStream_t stream) {
  return with_gated(kind, element, [&]<class T, Activation chosen>() {
    return run_gated<T, chosen>(rows, gate, threshold, stream);
  });
}

}  // namespace activation::cuda
