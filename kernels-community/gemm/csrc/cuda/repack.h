// Lays operands out with K inside, for inputs of any other strides.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace gemm::cuda {

// Bytes of (k, row) at from[k * k_stride + row * row_stride] go to to[row * k_size + k].
struct Repack {
  const uint8_t* from;
  uint8_t* to;
  int64_t rows;
  int64_t k_size;  // a multiple of 128
  int64_t row_stride;
  int64_t k_stride;
};

// Repacks one matrix or two in one launch; `count` is how many.
void repack(const Repack (&jobs)[2], int count, cudaStream_t stream);

}  // namespace gemm::cuda
