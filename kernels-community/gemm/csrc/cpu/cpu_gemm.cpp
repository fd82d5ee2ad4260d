// Computes C in tiles: each block of K is decoded, multiplied in float32, scaled and added.
#include "cpu_gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <torch/csrc/stable/ops.h>

#include "../product.h"
#include "fp8.h"

namespace gemm::cpu {
namespace {

constexpr int kRows = 32;
constexpr int kColumns = 32;
constexpr int kK = static_cast<int>(kScaleBlock);

// One block of K of the rows of a tile, decoded.
struct Operands {
  float a[kRows][kK];
  float b[kK][kColumns];
};

uint16_t round_to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Calls put(row, k, value) for a block of K of `count` rows.
template <class Put>
void decode(
    const View& view, const Decoder& decoder, int64_t first_row, int64_t count, int64_t first_k,
    const Put& put) {
  const auto* bytes = static_cast<const uint8_t*>(view.data);
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t k = 0; k < kK; ++k) {
      const int64_t at = (first_row + row) * view.row_stride + (first_k + k) * view.k_stride;
      put(row, k, decoder[bytes[at]]);
    }
  }
}

float scale_at(const View& view, int64_t row, int64_t block) {
  return static_cast<const float*>(view.data)[row * view.row_stride + block * view.k_stride];
}

void compute_tile(
    const Product& product, const Decoder& decoder, int64_t row0, int64_t column0, uint16_t* c,
    int64_t c_row_stride, int64_t c_column_stride) {
  const int64_t rows = std::min<int64_t>(kRows, product.m - row0);
  const int64_t columns = std::min<int64_t>(kColumns, product.n - column0);
  Operands operands{};
  float sums[kRows][kColumns] = {};
  for (int64_t block = 0; block < product.k_blocks(); ++block) {
    decode(product.a, decoder, row0, rows, block * kK, [&](int64_t row, int64_t k, float value) {
      operands.a[row][k] = value;
    });
    decode(
        product.b, decoder, column0, columns, block * kK,
        [&](int64_t column, int64_t k, float value) { operands.b[k][column] = value; });
    // kColumns divides the 128 of a scale block, so a tile has one scale of B.
    const float scale_b = scale_at(product.b_scale, column0 / kScaleBlock, block);
    for (int64_t row = 0; row < rows; ++row) {
      float block_sums[kColumns] = {};
      for (int k = 0; k < kK; ++k) {
        for (int column = 0; column < kColumns; ++column) {
          block_sums[column] += operands.a[row][k] * operands.b[k][column];
        }
      }
      const float scale = scale_at(product.a_scale, row0 + row, block) * scale_b;
      for (int column = 0; column < kColumns; ++column) {
        sums[row][column] += scale * block_sums[column];
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      c[(row0 + row) * c_row_stride + (column0 + column) * c_column_stride] =
          round_to_bfloat16(sums[row][column]);
    }
  }
}

const Decoder& find_decoder(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float8_e4m3fn: return decode_e4m3fn();
    case ScalarType::Float8_e4m3fnuz: return decode_e4m3fnuz();
    default:
      STD_TORCH_CHECK(
          false, "a and b must be float8_e4m3fn or float8_e4m3fnuz; found ",
          torch::headeronly::toString(tensor.scalar_type()));
  }
}

}  // namespace

void multiply_into(
    Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_scale, const Tensor& b_scale,
    bool nt) {
  const Product product = read_product(c, a, b, a_scale, b_scale, nt);
  const Decoder& decoder = find_decoder(a);
  auto* to = static_cast<uint16_t*>(c.mutable_data_ptr());
  const int64_t c_row_stride = c.stride(0);
  const int64_t c_column_stride = c.stride(1);
  const int64_t across = count_blocks(product.n, kColumns);
  const int64_t tiles = count_blocks(product.m, kRows) * across;
  torch::stable::parallel_for(0, tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      compute_tile(
          product, decoder, tile / across * kRows, tile % across * kColumns, to, c_row_stride,
          c_column_stride);
    }
  });
}

}  // namespace gemm::cpu
