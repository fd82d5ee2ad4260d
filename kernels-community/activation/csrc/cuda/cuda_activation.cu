// The forward ops: the value of each element, and its product with the other half in the gated ones.
#include <cstdint>

#include "choose.cuh"
#include "launch.h"
#include "stream.cuh"

namespace activation::cuda {
namespace {

template <Activation kind>
struct Unary {
  static constexpr bool kMostlyOneRow = true;
  static constexpr int kInputs = 1;
  static constexpr int kOutputs = 1;

  template <class T>
  static __device__ void apply(const float (&in)[1], float threshold, float (&out)[1]) {
    out[0] = activate<kind, T>(in[0], threshold);
  }
};

template <Activation kind>
struct Gated {
  static constexpr bool kMostlyOneRow = false;
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 1;

  template <class T>
  static __device__ void apply(const float (&in)[2], float threshold, float (&out)[1]) {
    out[0] = activate<kind, T>(in[0], threshold) * in[1];
  }
};

template <class T, Activation kind>
cudaError_t run_unary(const Rows& rows, cudaStream_t stream) {
  const Streams<T, 1, 1> streams = {
      {static_cast<const T*>(rows.input)},
      {static_cast<T*>(rows.out)},
      {rows.in_stride},
      {rows.out_stride},
      0.0f};
  return run_streams<Unary<kind>, T>(streams, rows.rows, rows.cols, stream);
}

template <class T, Activation kind>
cudaError_t run_gated(const Rows& rows, Gate gate, float threshold, cudaStream_t stream) {
  const T* first = static_cast<const T*>(rows.input);
  const T* second = first + rows.cols;
  const bool swapped = gate == Gate::kSecondHalf;
  const Streams<T, 2, 1> streams = {
      {swapped ? second : first, swapped ? first : second},
      {static_cast<T*>(rows.out)},
      {rows.in_stride, rows.in_stride},
      {rows.out_stride},
      threshold};
  return run_streams<Gated<kind>, T>(streams, rows.rows, rows.cols, stream);
}

}  // namespace

cudaError_t launch_unary(
    Activation kind, Element element, const Rows& rows, cudaStream_t stream) {
  return with_unary(kind, element, [&]<class T, Activation chosen>() {
    return run_unary<T, chosen>(rows, stream);
  });
}

cudaError_t launch_gated(
    Activation kind, Gate gate, Element element, const Rows& rows, float threshold,
    cudaStream_t stream) {
  return with_gated(kind, element, [&]<class T, Activation chosen>() {
    return run_gated<T, chosen>(rows, gate, threshold, stream);
  });
}

}  // namespace activation::cuda
