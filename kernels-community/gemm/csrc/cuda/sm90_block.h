// What a block of threads of a product knows: the launch, where its tiles begin, and its ring of
// stages in shared memory.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "ptx.h"
#include "raster.h"
#include "tile.h"

namespace gemm::cuda {

// What a launch computes. Strides count elements.
struct Problem {
  const float* a_scale;  // of (block of K, row of A)
  const float* b_scale;  // of (block of K, block of 128 columns)
  __nv_bfloat16* c;      // only a split product writes through this
  int64_t a_scale_k_stride;
  int64_t a_scale_m_stride;
  int64_t b_scale_k_stride;
  int64_t b_scale_n_stride;
  int64_t c_stride;
  int m;
  int n;
  int k_blocks;
  int stage_bytes;  // that the copy engine brings in one step
  Raster raster;    // of the clusters
  int last_row;     // where a tile begins at the latest
  bool waits_late;  // for the kernel before it, of which it needs nothing
};

// Where a tile begins in C, and the first of its rows that the tile above does not have.
struct Place {
  int row;
  int own_row;
  int column;
};

// The place of the tile of number `unit`, for the block `sharer` of its cluster.
template <class Tile>
__device__ __forceinline__ Place locate(const Problem& problem, int unit, int sharer) {
  const auto [m, n] = find_unit(problem.raster, unit);
  constexpr int kAlongM = Tile::kShare == Share::kB ? Tile::kSharers : 1;
  constexpr int kAlongN = Tile::kShare == Share::kA ? Tile::kSharers : 1;
  const int own_row = (m * kAlongM + (kAlongM > 1 ? sharer : 0)) * Tile::kRows;
  const int column = (n * kAlongN + (kAlongN > 1 ? sharer : 0)) * Tile::kColumns;
  return {min(own_row, problem.last_row), own_row, column};
}

// A position in the ring.
template <int stages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The addresses of a block's shared memory, and its part of the work.
template <class Tile>
struct Block {
  uint32_t shared;
  int sharer;
  int split;
  int first_unit;
  int unit_step;
  int units;
  int k_begin;
  int k_end;

  __device__ __forceinline__ uint32_t a(int stage) const {
    return shared + stage * Tile::kBytesA;
  }
  __device__ __forceinline__ uint32_t b(int stage) const {
    return shared + Tile::kAtB + stage * Tile::kBytesB;
  }
  __device__ __forceinline__ uint32_t scales(int stage) const {
    return shared + Tile::kAtScales + stage * Tile::kScaleBytes;
  }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared + Tile::kAtBarriers + stage * 8;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const {
    return shared + Tile::kAtBarriers + (Tile::kStages + stage) * 8;
  }
};

template <class Tile>
__device__ __forceinline__ Block<Tile> find_block(const Problem& problem, uint32_t shared) {
  const int rank = Tile::kCluster > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
  Block<Tile> block;
  block.shared = (shared + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  block.sharer = rank % Tile::kSharers;
  block.split = rank / Tile::kSharers;
  block.first_unit = static_cast<int>(blockIdx.x) / Tile::kCluster;
  block.unit_step = static_cast<int>(gridDim.x) / Tile::kCluster;
  block.units = problem.raster.m_units * problem.raster.n_units;
  block.k_begin = problem.k_blocks * block.split / Tile::kSplits;
  block.k_end = problem.k_blocks * (block.split + 1) / Tile::kSplits;
  return block;
}

}  // namespace gemm::cuda
