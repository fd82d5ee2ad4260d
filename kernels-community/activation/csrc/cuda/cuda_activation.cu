// The forward ops: the value of each element, and its product with the other half in the gated ones.
#include "cuda_activation.h"

#include <cstdint>

#include <torch/headeronly/util/Exception.h>

#include "../launch_plan.h"
#include "current_stream.h"
#include "stream.cuh"

namespace activation::cuda {
namespace {

template <Activation kind>
struct Unary {
  static constexpr int kInputs = 1;
  static constexpr int kOutputs = 1;

  template <class T>
  static __device__ void apply(const float (&in)[1], float threshold, float (&out)[1]) {
    out[0] = activate<kind, T>(in[0], threshold);
  }
};

template <Activation kind>
struct Gated {
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 1;

  template <class T>
  static __device__ void apply(const float (&in)[2], float threshold, float (&out)[1]) {
    out[0] = activate<kind, T>(in[0], threshold) * in[1];
  }
};

template <class T, Activation kind>
void run_unary(const LaunchPlan& plan, cudaStream_t stream) {
  const Streams<T, 1, 1> streams = {
      {static_cast<const T*>(plan.input.const_data_ptr())},
      {static_cast<T*>(plan.out.mutable_data_ptr())},
      {plan.in_stride},
      {plan.out_stride},
      0.0f};
  run_streams<Unary<kind>, T>(streams, plan.rows, plan.cols, stream);
}

template <class T, Activation kind>
void run_gated(const LaunchPlan& plan, Gate gate, float threshold, cudaStream_t stream) {
  const T* first = static_cast<const T*>(plan.input.const_data_ptr());
  const T* second = first + plan.cols;
  const bool swapped = gate == Gate::kSecondHalf;
  const Streams<T, 2, 1> streams = {
      {swapped ? second : first, swapped ? first : second},
      {static_cast<T*>(plan.out.mutable_data_ptr())},
      {plan.in_stride, plan.in_stride},
      {plan.out_stride},
      threshold};
  run_streams<Gated<kind>, T>(streams, plan.rows, plan.cols, stream);
}

}  // namespace

void apply_unary(Activation kind, Tensor& out, const Tensor& input) {
  const LaunchPlan plan = plan_launch(out, input, Form::kUnary);
  const CurrentStream stream(input);
  with_dtype(input, [&]<class T>() {
    switch (kind) {
      case Activation::kGelu: return run_unary<T, Activation::kGelu>(plan, stream);
      case Activation::kGeluTanh: return run_unary<T, Activation::kGeluTanh>(plan, stream);
      case Activation::kGeluQuick: return run_unary<T, Activation::kGeluQuick>(plan, stream);
      case Activation::kSilu: return run_unary<T, Activation::kSilu>(plan, stream);
      case Activation::kFatrelu: STD_TORCH_CHECK(false, "fatrelu has no unary op");
    }
  });
  finish_launch(plan, out);
}

void apply_gated(
    Activation kind, Gate gate, Tensor& out, const Tensor& input, double threshold) {
  const LaunchPlan plan = plan_launch(out, input, Form::kGated);
  const CurrentStream stream(input);
  const float cut = static_cast<float>(threshold);
  with_dtype(input, [&]<class T>() {
    switch (kind) {
      case Activation::kGelu: return run_gated<T, Activation::kGelu>(plan, gate, cut, stream);
      case Activation::kGeluTanh:
        return run_gated<T, Activation::kGeluTanh>(plan, gate, cut, stream);
      case Activation::kSilu: return run_gated<T, Activation::kSilu>(plan, gate, cut, stream);
      case Activation::kFatrelu:
        return run_gated<T, Activation::kFatrelu>(plan, gate, cut, stream);
      case Activation::kGeluQuick: STD_TORCH_CHECK(false, "gelu_quick has no gated op");
    }
  });
  finish_launch(plan, out);
}

}  // namespace activation::cuda
