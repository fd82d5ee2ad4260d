// Descriptions of matrices for the copy engine, made by the driver and remembered.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace gemm::cuda {

// A matrix of dense rows, moved in boxes. All sizes count elements.
struct Matrix {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int box_rows;
  int box_columns;
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  bool operator==(const Matrix&) const = default;
};

// The description of a matrix. `data` and the rows must begin at multiples of 16 bytes.
CUtensorMap describe_matrix(const Matrix& matrix);

}  // namespace gemm::cuda
