// The forward kernel for dense 16-bit rows of a common length, where nothing is left to ask: no bounds, no
// stride, a weight that is there.
#pragma once

#include "elements.cuh"
#include "kept_reads.cuh"
#include "norm_calls.h"
#include "row_sum.cuh"

namespace layer_norm::cuda {

// In one line of the constant cache, the first that a kernel reads.
struct WholeArguments {
  const void* x;
  const void* weight;
  const void* bias;  // null: none; in LayerNorm alone
  void* y;
  float eps;
};

// A row's weight or bias, asked for together with x and in shared memory until it is needed: there it costs no
// registers, of which each row at once on a multiprocessor needs some. A thread asks for its own packs.
template <class T, int threads, int packs>
struct Waiting {
  uint4 of[packs][threads];

  __device__ void request(const void* from) {
    const T* first = static_cast<const T*>(from) + threadIdx.x * kPack<T>;
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      copy_later(&of[n][threadIdx.x], first + n * threads * kPack<T>);
    }
  }

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < packs; ++n) of[n][threadIdx.x] = make_uint4(0, 0, 0, 0);
  }

  // After wait_for_copies().
  __device__ void read(int n, float (&to)[kPack<T>]) const {
    unpack(Pack<T, kPack<T>>{{of[n][threadIdx.x]}}, to);
  }
};

// `threads` with `packs` each are a row, of which a multiprocessor is to hold `blocks`. The L2 may be asked to keep
// x longer than what else is in it.
template <class T, bool is_rms, int threads, int packs, int blocks, bool keeps>
__global__ void __launch_bounds__(threads, blocks)
    whole_forward_kernel(const __grid_constant__ WholeArguments a) {
  constexpr int kCount = kPack<T>;
  constexpr int kApart = threads * kCount;
  constexpr int kHidden = packs * kApart;
  constexpr int kWarps = threads / kWarp;
  __shared__ Waiting<T, threads, packs> waiting[is_rms ? 1 : 2];
  const int64_t first = block_from_the_end() * kHidden + threadIdx.x * kCount;
  const T* x = static_cast<const T*>(a.x) + first;
  wait_for_predecessor();

  Pack<T, kCount> h[packs];
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    h[n] = keeps ? load_kept<kCount>(x + n * kApart) : load_pack<kCount>(x + n * kApart);
  }
  auto& weight = waiting[0];
  auto& bias = waiting[is_rms ? 0 : 1];
  weight.request(a.weight);
  if constexpr (!is_rms) {
    if (a.bias) {
      bias.request(a.bias);
    } else {
      bias.clear();
    }
  }
  let_successor_come();

  float own[kCount];
  float mean = 0;
  float squares;
  if constexpr (is_rms) {
    __shared__ WarpSums<1> shared;
    float parts[4] = {};
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      unpack(h[n], own);
#pragma unroll
      for (int e = 0; e < kCount; ++e) parts[e % 4] = fmaf(own[e], own[e], parts[e % 4]);
    }
    float sum[1] = {(parts[0] + parts[1]) + (parts[2] + parts[3])};
    sum_over_row<false, kWarps, true>(sum, shared);
    squares = sum[0];
  } else {
    __shared__ WarpMoments<kWarps> shared;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      unpack(h[n], own);
#pragma unroll
      for (int e = 0; e < kCount; ++e) sum += own[e];
    }
    Moments moments = {sum / (packs * kCount), 0};
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      unpack(h[n], own);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const float centred = own[e] - moments.mean;
        moments.squares = fmaf(centred, centred, moments.squares);
      }
    }
    moments = join_over_row<packs * kCount>(moments, shared);
    mean = moments.mean;
    squares = moments.squares;
  }
  const float scale = rsqrtf(fmaf(squares, 1.0f / kHidden, a.eps));

  T* y = static_cast<T*>(a.y) + first;
  wait_for_copies();
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    float factor[kCount];
    float shift[kCount];
    unpack(h[n], own);
    weight.read(n, factor);
    if constexpr (!is_rms) bias.read(n, shift);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      own[e] = is_rms ? own[e] * scale * factor[e]
                      : fmaf((own[e] - mean) * scale, factor[e], shift[e]);
    }
    store_floats(y + n * kApart, own);
  }
}

// The kernel for a form whose threads' packs are the row. docs/kernels/triton-layer-norm.md says how the
// numbers were chosen.
template <class T, bool is_rms>
auto* find_whole_kernel(const Form& form) {
  constexpr int kBlocks = is_rms ? 6 : 8;
  if (form.threads == 128) return whole_forward_kernel<T, is_rms, 128, 2, 16, false>;
  if (form.threads == 256) {
    return form.keeps ? whole_forward_kernel<T, is_rms, 256, 2, kBlocks, true>
                      : whole_forward_kernel<T, is_rms, 256, 2, kBlocks, false>;
  }
  return form.keeps ? whole_forward_kernel<T, is_rms, 512, 2, 4, true>
                    : whole_forward_kernel<T, is_rms, 512, 2, 4, false>;
}

template <class T, bool is_rms>
cudaError_t run_whole_forward(const ForwardCall& call, const Form& form, cudaStream_t stream) {
  if (call.rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  const WholeArguments arguments = {call.x, call.weight, call.bias, call.y, call.eps};
  const dim3 grid(static_cast<unsigned>(call.rows));
  auto* kernel = find_whole_kernel<T, is_rms>(form);
  return launch(kernel, grid, dim3(form.threads), 0, form.pdl, stream, arguments);
}

}  // namespace layer_norm::cuda
