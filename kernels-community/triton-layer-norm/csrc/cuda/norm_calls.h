// What the device code offers: launches on plain memory. No header of torch is read here, because
// nvcc would read it again for every architecture; norm_ops.cpp is what knows tensors.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace layer_norm::cuda {

enum class Element { kFloat, kBFloat16, kHalf };

// What of a device decides how a call is laid out on it.
struct Device {
  int processors;
  bool has_pdl;  // programmatic dependent launch: compute capability 9.0
};

// y = norm(x + residual) * weight + bias over `rows` rows of `hidden`. Strides count elements, from
// row to row; a row is dense, and so are y, sum, weight and bias. A null pointer: there is none.
struct ForwardCall {
  const void* x;
  const void* residual;
  const void* weight;
  const void* bias;
  void* y;
  void* sum;  // x + residual; there is one where there is a residual
  int64_t rows;
  int hidden;
  int64_t x_stride;
  int64_t residual_stride;
  float eps;
  bool is_rms;
  Element element;            // of x and y
  bool has_wide_parameters;   // weight and bias are float, whatever x is
  bool has_wide_residual;     // likewise
  bool has_wide_sum;          // likewise
};

// The gradients for dy and dsum, those of y and of the sum. `shares` has room for
// `sharers` rows of `hidden` floats for the weight, and as many behind them for the bias.
struct BackwardCall {
  const void* h;  // what was normalised
  const void* weight;
  const void* dy;
  const void* dsum;
  void* dh;
  void* dweight;  // null: not wanted
  void* dbias;    // null: not wanted
  float* shares;
  float* row_factors;  // two floats a row, where the form holds no packs
  int64_t rows;
  int hidden;
  int64_t h_stride;
  int64_t dy_stride;
  int64_t dsum_stride;
  float eps;
  bool is_rms;
  Element element;
  bool has_wide_parameters;
};

// How a kernel is laid over its rows: `threads` for each row, and `rows` rows in a block. A thread
// holds `packs` packs of 16 bytes; 0: it walks along the row, element by element. Where there are many
// rows, blocks may be crowded: more of them at once, with fewer registers each. A common length of rows
// has kernels of its own, for threads whose packs are the whole row; the L2 may be asked to keep these.
struct Form {
  int threads;
  int rows;
  int packs;
  bool pdl;
  bool is_crowded;
  bool is_whole = false;
  bool keeps = false;
};

Form choose_forward_form(const ForwardCall& call, const Device& device);
Form choose_backward_form(const BackwardCall& call, const Device& device);

// How many blocks a backward call has, each with a share of the sums over the rows.
int count_sharers(const BackwardCall& call, const Form& form, const Device& device);

// Each starts its kernels on `stream`, of the current device, and returns what the runtime says.
cudaError_t launch_forward(const ForwardCall& call, const Form& form, cudaStream_t stream);
cudaError_t launch_backward(
    const BackwardCall& call, const Form& form, int sharers, cudaStream_t stream);

}  // namespace layer_norm::cuda
