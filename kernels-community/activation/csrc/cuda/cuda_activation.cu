// One thread computes one pack of neighbouring elements, 16 bytes where the layout allows it.
#include "cuda_activation.h"

#include <algorithm>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/headeronly/util/Exception.h>

#include "../launch_plan.h"

namespace activation::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;  // beyond that the threads loop
constexpr int kPackBytes = 16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ inline void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

// x * sigmoid(z) for z of the sign of x. exp(-|z|) cannot overflow, and nothing cancels.
__device__ inline float times_sigmoid(float x, float z) {
  const float e = expf(-fabsf(z));
  return (z < 0.0f ? x * e : x) / (1.0f + e);
}

template <Activation kind>
__device__ inline float activate(float x, float threshold) {
  if constexpr (kind == Activation::kSilu) {
    return times_sigmoid(x, x);
  } else if constexpr (kind == Activation::kGeluQuick) {
    return times_sigmoid(x, 1.702f * x);
  } else if constexpr (kind == Activation::kGeluTanh) {
    // (1 + tanh(u)) / 2 = sigmoid(2 u)
    constexpr float kTwiceSqrt2OverPi = 1.5957691216057308f;
    return times_sigmoid(x, x * kTwiceSqrt2OverPi * fmaf(x * x, 0.044715f, 1.0f));
  } else if constexpr (kind == Activation::kGelu) {
    return x * normcdff(x);
  } else {
    static_assert(kind == Activation::kFatrelu);
    return x <= threshold ? 0.0f : x;  // written so that NaN passes
  }
}

template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T values[count];
};

// What a kernel needs of a LaunchPlan. `up` is null for the unary form.
template <class T>
struct Job {
  T* out;
  const T* gate;
  const T* up;
  int64_t rows;
  int64_t packs;  // in one row
  int64_t out_stride;
  int64_t in_stride;
  float threshold;
};

template <Activation kind, bool gated, class T, int count>
__global__ void __launch_bounds__(kThreads) activation_kernel(Job<T> job) {
  using PackT = Pack<T, count>;
  const int64_t total = job.rows * job.packs;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = first; i < total; i += step) {
    const int64_t row = i / job.packs;
    const int64_t col = (i - row * job.packs) * count;
    const PackT gate = *reinterpret_cast<const PackT*>(job.gate + row * job.in_stride + col);
    PackT up;
    if constexpr (gated) up = *reinterpret_cast<const PackT*>(job.up + row * job.in_stride + col);
    PackT result;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      float value = activate<kind>(to_float(gate.values[k]), job.threshold);
      if constexpr (gated) value *= to_float(up.values[k]);
      assign(result.values[k], value);
    }
    *reinterpret_cast<PackT*>(job.out + row * job.out_stride + col) = result;
  }
}

template <Activation kind, bool gated, class T, int count>
void launch(Job<T> job, cudaStream_t stream) {
  job.packs /= count;
  const int64_t blocks = (job.rows * job.packs + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(std::min(blocks, kMaxBlocks));
  activation_kernel<kind, gated, T, count><<<grid, kThreads, 0, stream>>>(job);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// Whether every row begins at a multiple of `bytes` and is one long.
template <class T>
bool is_aligned(const Job<T>& job, int64_t bytes) {
  const auto at = [](const T* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)); };
  const int64_t size = sizeof(T);
  const int64_t all = at(job.out) | at(job.gate) | at(job.up) | job.packs * size |
                      (job.rows > 1 ? (job.out_stride | job.in_stride) * size : 0);
  return all % bytes == 0;
}

template <Activation kind, bool gated, class T>
void launch_typed(const LaunchPlan& plan, Gate gate, float threshold, cudaStream_t stream) {
  const T* input = static_cast<const T*>(plan.input.const_data_ptr());
  const bool swapped = gated && gate == Gate::kSecondHalf;
  const Job<T> job = {
      static_cast<T*>(plan.out.mutable_data_ptr()),
      swapped ? input + plan.cols : input,
      !gated ? nullptr : (swapped ? input : input + plan.cols),
      plan.rows,
      plan.cols,
      plan.out_stride,
      plan.in_stride,
      threshold};
  if (is_aligned(job, kPackBytes)) {
    launch<kind, gated, T, kPackBytes / sizeof(T)>(job, stream);
  } else {
    launch<kind, gated, T, 1>(job, stream);
  }
}

template <Activation kind, bool gated>
void launch_kind(const LaunchPlan& plan, Gate gate, float threshold) {
  if (plan.rows == 0 || plan.cols == 0) return;
  const auto device = plan.input.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* stream_handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream_handle));
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  switch (plan.input.scalar_type()) {
    case ScalarType::Float:
      return launch_typed<kind, gated, float>(plan, gate, threshold, stream);
    case ScalarType::BFloat16:
      return launch_typed<kind, gated, __nv_bfloat16>(plan, gate, threshold, stream);
    case ScalarType::Half:
      return launch_typed<kind, gated, __half>(plan, gate, threshold, stream);
    default:
      STD_TORCH_CHECK(
          false, "dtype must be float32, bfloat16 or float16, not ",
          torch::headeronly::toString(plan.input.scalar_type()));
  }
}

template <bool gated>
void launch_plan(Activation kind, Gate gate, const LaunchPlan& plan, float threshold) {
  switch (kind) {
    case Activation::kGelu: return launch_kind<Activation::kGelu, gated>(plan, gate, threshold);
    case Activation::kGeluTanh:
      return launch_kind<Activation::kGeluTanh, gated>(plan, gate, threshold);
    case Activation::kGeluQuick:
      return launch_kind<Activation::kGeluQuick, gated>(plan, gate, threshold);
    case Activation::kSilu: return launch_kind<Activation::kSilu, gated>(plan, gate, threshold);
    case Activation::kFatrelu:
      return launch_kind<Activation::kFatrelu, gated>(plan, gate, threshold);
  }
}

}  // namespace

void apply_unary(Activation kind, Tensor& out, const Tensor& input) {
  const LaunchPlan plan = plan_launch(out, input, Form::kUnary);
  launch_plan<false>(kind, Gate::kFirstHalf, plan, 0.0f);
  finish_launch(plan, out);
}

void apply_gated(
    Activation kind, Gate gate, Tensor& out, const Tensor& input, double threshold) {
  const LaunchPlan plan = plan_launch(out, input, Form::kGated);
  launch_plan<true>(kind, gate, plan, static_cast<float>(threshold));
  finish_launch(plan, out);
}

}  // namespace activation::cuda
