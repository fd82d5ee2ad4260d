// The forward kernels: a row is read once, kept in registers as it came, and written once.
//
// All arithmetic is in float and rounded once. The mean is subtracted before squares are summed, so
// nothing cancels. docs/kernels/triton-layer-norm.md says how the forms were chosen.
#pragma once

#include <type_traits>

#include "elements.cuh"
#include "norm_calls.h"
#include "row_sum.cuh"
#include "whole_forward.cuh"

namespace layer_norm::cuda {

struct ForwardArguments {
  const void* x;
  const void* residual;
  const void* weight;
  const void* bias;
  void* y;
  void* sum;
  int64_t rows;
  int64_t x_stride;
  int64_t residual_stride;
  int hidden;
  float eps;
  float share;  // 1 / hidden
  bool has_wide_residual;
  bool has_wide_sum;
};

// A row's packs in the registers of one thread: as they were read, or, with a residual, as floats.
template <class T, bool adds, int packs>
struct Held {
  std::conditional_t<adds, float[packs][kPack<T>], Pack<T, kPack<T>>[packs]> data;

  __device__ void read(int n, float (&to)[kPack<T>]) const {
    if constexpr (adds) {
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) to[e] = data[n][e];
    } else {
      unpack(data[n], to);
    }
  }

  // Between two readings of a row that would need too many registers as floats.
  __device__ void stay_as_read() {
    if constexpr (!adds && packs > 2) {
#pragma unroll
      for (int n = 0; n < packs; ++n) stay_packed(data[n]);
    }
  }
};

// A multiprocessor is to hold `blocks` blocks of `most` threads: their registers are what a row is kept
// in while it is on its way.
template <
    class T, class W, bool is_rms, bool adds, int packs, bool is_narrow, int most, int blocks>
__global__ void __launch_bounds__(most, blocks)
    norm_forward_kernel(const __grid_constant__ ForwardArguments a) {
  constexpr int kCount = kPack<T>;
  // The weight is read before the sums where there is room: one latency less for short calls.
  constexpr bool kEarly = packs <= 2;
  __shared__ WarpSums<1> shared[2];
  const int64_t row =
      is_narrow ? block_from_the_end() * blockDim.y + threadIdx.y : block_from_the_end();
  const bool is_row = !is_narrow || row < a.rows;
  const int first = threadIdx.x * kCount;
  const int apart = blockDim.x * kCount;
  const auto is_inside = [&](int n) { return is_row && first + n * apart < a.hidden; };
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride + first;
  const W* weights = static_cast<const W*>(a.weight) + first;
  wait_for_predecessor();

  Held<T, adds, packs> h;
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    if constexpr (adds) {
      float more[kCount] = {};
      for (int e = 0; e < kCount; ++e) h.data[n][e] = 0;
      if (is_inside(n)) {
        unpack(load_pack<kCount>(x + n * apart), h.data[n]);
        const int64_t place = row * a.residual_stride + first + n * apart;
        load_floats<T>(a.residual, a.has_wide_residual, place, more);
      }
#pragma unroll
      for (int e = 0; e < kCount; ++e) h.data[n][e] += more[e];
    } else {
      h.data[n] = is_inside(n) ? load_pack<kCount>(x + n * apart) : zero_pack<T, kCount>();
    }
  }
  Pack<W, kCount> weight[packs];
  const auto read_weight = [&](int n) {
    if (a.weight && is_inside(n)) weight[n] = load_pack<kCount>(weights + n * apart);
  };
  if constexpr (kEarly) {
#pragma unroll
    for (int n = 0; n < packs; ++n) read_weight(n);
  }
  let_successor_come();
  if constexpr (adds) {
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      const int64_t place = row * a.hidden + first + n * apart;
      if (is_inside(n)) store_wide_or_not<T>(a.sum, a.has_wide_sum, place, h.data[n]);
    }
  }

  float mean = 0;
  float own[kCount];
  if constexpr (!is_rms) {
    float sum[1] = {0};
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      h.read(n, own);
#pragma unroll
      for (int e = 0; e < kCount; ++e) sum[0] += own[e];
    }
    sum_over_row<is_narrow>(sum, shared[0]);
    mean = sum[0] * a.share;
    h.stay_as_read();
  }
  float squares[1] = {0};
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    if (!is_rms && !is_inside(n)) continue;
    h.read(n, own);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const float centred = is_rms ? own[e] : own[e] - mean;
      squares[0] = fmaf(centred, centred, squares[0]);
    }
  }
  sum_over_row<is_narrow>(squares, shared[1]);
  const float scale = rsqrtf(fmaf(squares[0], a.share, a.eps));
  h.stay_as_read();

  T* y = static_cast<T*>(a.y) + row * a.hidden + first;
  const W* biases = static_cast<const W*>(a.bias) + first;
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    if (!is_inside(n)) continue;
    if constexpr (!kEarly) read_weight(n);
    h.read(n, own);
#pragma unroll
    for (int e = 0; e < kCount; ++e) own[e] = (is_rms ? own[e] : own[e] - mean) * scale;
    float parameter[kCount];
    if (a.weight) {
      unpack(weight[n], parameter);
#pragma unroll
      for (int e = 0; e < kCount; ++e) own[e] *= parameter[e];
    }
    if (a.bias) [[unlikely]] {
      unpack(load_pack<kCount>(biases + n * apart), parameter);
#pragma unroll
      for (int e = 0; e < kCount; ++e) own[e] += parameter[e];
    }
    store_floats(y + n * apart, own);
  }
}

// One element of x + residual; wide memory holds floats.
template <class T>
__device__ inline float element_at(const void* from, bool is_wide, int64_t index) {
  return is_wide ? static_cast<const float*>(from)[index]
                 : to_float(static_cast<const T*>(from)[index]);
}

// Rows of any length at any address, element by element; x is read again for every sum.
template <class T, class W, bool is_rms, bool adds>
__global__ void __launch_bounds__(kMaxThreads)
    walking_forward_kernel(const __grid_constant__ ForwardArguments a) {
  __shared__ WarpSums<1> shared[2];
  const int64_t row = block_from_the_end();
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
  const auto h = [&](int c) {
    const float own = to_float(x[c]);
    if constexpr (!adds) return own;
    return own + element_at<T>(a.residual, a.has_wide_residual, row * a.residual_stride + c);
  };
  let_successor_come();
  wait_for_predecessor();
  float mean = 0;
  if constexpr (!is_rms) {
    float sum[1] = {0};
    for (int c = threadIdx.x; c < a.hidden; c += blockDim.x) sum[0] += h(c);
    sum_over_row<false, kMaxWarps>(sum, shared[0]);
    mean = sum[0] * a.share;
  }
  float squares[1] = {0};
  for (int c = threadIdx.x; c < a.hidden; c += blockDim.x) {
    const float centred = h(c) - mean;
    squares[0] = fmaf(centred, centred, squares[0]);
  }
  sum_over_row<false, kMaxWarps>(squares, shared[1]);
  const float scale = rsqrtf(fmaf(squares[0], a.share, a.eps));
  T* y = static_cast<T*>(a.y) + row * a.hidden;
  for (int c = threadIdx.x; c < a.hidden; c += blockDim.x) {
    const float own = h(c);
    float out = (own - mean) * scale;
    if (a.weight) out *= to_float(static_cast<const W*>(a.weight)[c]);
    if (a.bias) out += to_float(static_cast<const W*>(a.bias)[c]);
    assign(y[c], out);
    if constexpr (adds) {
      if (a.has_wide_sum) {
        static_cast<float*>(a.sum)[row * a.hidden + c] = own;
      } else {
        assign(static_cast<T*>(a.sum)[row * a.hidden + c], own);
      }
    }
  }
}

// The kernel for a form. Crowded ones have as few registers as they can do with, so that more rows are
// on their way at once, and are slower for a row alone.
template <class T, class W, bool is_rms, bool adds>
auto* find_forward_kernel(const Form& form) {
  constexpr int kMost = kPackThreads;
  constexpr bool kIsPacked = !adds && sizeof(T) == sizeof(W);
  auto* kernel = walking_forward_kernel<T, W, is_rms, adds>;
  if (form.packs == 1) {
    constexpr int kBlocks = adds ? 2 : kIsPacked ? 4 : 3;
    kernel = form.threads > kWarp
                 ? norm_forward_kernel<T, W, is_rms, adds, 1, false, kMost, kBlocks>
                 : norm_forward_kernel<T, W, is_rms, adds, 1, true, kMost, kBlocks>;
  } else if (form.packs == 2) {
    constexpr int kCrowded = kIsPacked ? 3 : 2;
    kernel = form.is_crowded ? norm_forward_kernel<T, W, is_rms, adds, 2, false, kMost, kCrowded>
                             : norm_forward_kernel<T, W, is_rms, adds, 2, false, kMost, 2>;
  } else if (form.packs == 4) {
    constexpr int kBlocks = adds ? 1 : 2;
    constexpr int kHalf = kIsPacked ? kMost / 2 : kMost;
    kernel = form.is_crowded && form.threads <= kHalf
                 ? norm_forward_kernel<
                       T, W, is_rms, adds, 4, false, kHalf, kIsPacked ? 5 : kBlocks>
                 : norm_forward_kernel<T, W, is_rms, adds, 4, false, kMost, kBlocks>;
  }
  return kernel;
}

template <class T, class W, bool is_rms, bool adds>
cudaError_t run_forward(const ForwardCall& call, const Form& form, cudaStream_t stream) {
  if constexpr (!adds && sizeof(T) == 2 && sizeof(W) == 2) {
    if (form.is_whole) return run_whole_forward<T, is_rms>(call, form, stream);
  }
  const ForwardArguments arguments = {
      call.x, call.residual, call.weight, call.bias, call.y, call.sum, call.rows, call.x_stride,
      call.residual_stride, call.hidden, call.eps, 1.0f / static_cast<float>(call.hidden),
      call.has_wide_residual, call.has_wide_sum};
  auto* kernel = find_forward_kernel<T, W, is_rms, adds>(form);
  const int64_t blocks = (call.rows + form.rows - 1) / form.rows;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks));
  return launch(kernel, grid, dim3(form.threads, form.rows), 0, form.pdl, stream, arguments);
}

}  // namespace layer_norm::cuda
