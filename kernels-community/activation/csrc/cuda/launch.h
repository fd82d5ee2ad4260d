// What the device code offers: launches on plain memory. No header of torch is read here, because
// nvcc would read it again for every architecture; cuda_ops.cpp is what knows tensors.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "../activation_kind.h"

namespace activation::cuda {

// `rows` rows of `cols` results each. Strides count elements, from row to row; a row is dense.
struct Rows {
  const void* input;
  void* out;
  int64_t rows;
  int64_t cols;
  int64_t in_stride;
  int64_t out_stride;
};

// The tensors of a backward op, all dense: `rows` rows of `cols` in `grad_output`, and in the other
// two of as many, or, for a gated op, of twice as many.
struct GradientRows {
  const void* grad_output;
  const void* input;
  void* grad_input;
  int64_t rows;
  int64_t cols;
};

// Each starts its kernels on `stream`, of the current device, and returns what the runtime says;
// cudaErrorInvalidValue if there is no op of this kind.
cudaError_t launch_unary(Activation kind, Element element, const Rows& rows, cudaStream_t stream);
cudaError_t launch_gated(
    Activation kind, Gate gate, Element element, const Rows& rows, float threshold,
    cudaStream_t stream);
cudaError_t launch_unary_gradient(
    Activation kind, Element element, const GradientRows& rows, cudaStream_t stream);
cudaError_t launch_gated_gradient(
    Activation kind, Gate gate, Element element, const GradientRows& rows, float threshold,
    cudaStream_t stream);

}  // namespace activation::cuda
