// The driver's encoder is looked up at run time, so the kernel does not link to the driver.
#include "tensor_map.h"

#include <array>
#include <cstddef>

#include <cuda_runtime.h>
#include <cudaTypedefs.h>

#include <torch/csrc/stable/macros.h>
#include <torch/headeronly/util/Exception.h>

namespace gemm::cuda {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

Encode find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  STD_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
#else
  STD_CUDA_CHECK(
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
  STD_TORCH_CHECK(
      result == cudaDriverEntryPointSuccess && found != nullptr,
      "the CUDA driver has no cuTensorMapEncodeTiled: gemm needs driver 525 or newer");
  return reinterpret_cast<Encode>(found);
}

// The driver, unlike the runtime, does not find the device's context by itself on a new thread.
void enter_context() {
  int device = 0;
  STD_CUDA_CHECK(cudaGetDevice(&device));
  STD_CUDA_CHECK(cudaSetDevice(device));
}

CUtensorMap encode(const Matrix& matrix) {
  static const Encode encoder = find_encoder();
  const int size = matrix.type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
  const cuuint64_t sizes[] = {
      static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_stride * size)};
  const cuuint32_t box[] = {
      static_cast<cuuint32_t>(matrix.box_columns), static_cast<cuuint32_t>(matrix.box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const auto try_encoding = [&] {
    return encoder(
        &map, matrix.type, 2, const_cast<void*>(matrix.data), sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, matrix.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = try_encoding();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    enter_context();
    result = try_encoding();
  }
  STD_TORCH_CHECK(
      result == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with ", static_cast<int>(result),
      " for ", matrix.rows, " x ", matrix.columns, " with stride ", matrix.row_stride);
  return map;
}

struct Remembered {
  Matrix matrix{};
  CUtensorMap map{};
};

size_t slot_of(const Matrix& matrix, size_t slots) {
  const auto address = reinterpret_cast<uintptr_t>(matrix.data) >> 9;
  const auto sizes = static_cast<uintptr_t>(matrix.rows * 31 + matrix.columns * 7);
  return (address ^ (address >> 8) ^ sizes ^ static_cast<uintptr_t>(matrix.box_rows)) % slots;
}

}  // namespace

CUtensorMap describe_matrix(const Matrix& matrix) {
  // A map says nothing that the key does not, so one of memory that was freed since is still right.
  thread_local std::array<Remembered, 64> memory;
  Remembered& slot = memory[slot_of(matrix, memory.size())];
  if (!(slot.matrix == matrix)) {
    slot.map = encode(matrix);
    slot.matrix = matrix;
  }
  return slot.map;
}

}  // namespace gemm::cuda
