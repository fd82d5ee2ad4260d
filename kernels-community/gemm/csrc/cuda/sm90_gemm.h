// The product on Hopper: one warp of a block loads, one loads scales, the others multiply.
//
// Tiles of A and B travel through a ring of stages in shared memory. `full[stage]` completes when
// the copy engine and the scales have arrived, `empty[stage]` when every warp that reads the stage,
// in all blocks that share it, is done. The matrix instruction sums with fewer bits than float32
// has, so each 128 of K start from zero and are then scaled and added to float32 sums in registers.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

#include "ptx.h"
#include "raster.h"
#include "tile.h"
#include "wgmma.h"

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

// One thread asks the copy engine for every tile of A and B.
template <class Tile>
__device__ __forceinline__ void load_operands(
    const CUtensorMap& a_map, const CUtensorMap& b_map, const Problem& problem,
    const Block<Tile>& block) {
  const auto sharing =
      static_cast<uint16_t>(((1 << Tile::kSharers) - 1) << (block.split * Tile::kSharers));
  Ring<Tile::kStages> ring;
  for (int unit = block.first_unit; unit < block.units; unit += block.unit_step) {
    const Place place = locate<Tile>(problem, unit, block.sharer);
    for (int k = block.k_begin; k < block.k_end; ++k) {
      ptx::wait(block.empty(ring.stage), ring.parity ^ 1);
      const uint32_t full = block.full(ring.stage);
      ptx::arrive_expecting(full, static_cast<uint32_t>(problem.stage_bytes));
      if constexpr (Tile::kShare == Share::kA) {
        const int part = block.sharer * Tile::kLoadRowsA;
        ptx::load_tile_shared(
            block.a(ring.stage) + part * kBlockK, &a_map, full, k * kBlockK, place.row + part,
            sharing);
      } else {
        ptx::load_tile(block.a(ring.stage), &a_map, full, k * kBlockK, place.row);
      }
      if constexpr (Tile::kShare == Share::kB) {
        const int part = block.sharer * Tile::kLoadRowsB;
        ptx::load_tile_shared(
            block.b(ring.stage) + part * kBlockK, &b_map, full, k * kBlockK, place.column + part,
            sharing);
      } else {
        ptx::load_tile(block.b(ring.stage), &b_map, full, k * kBlockK, place.column);
      }
      ring.advance();
    }
  }
}

// Copies the scales of every stage of one tile, with any strides, by one warp.
template <class Tile>
__device__ __forceinline__ void load_tile_scales(
    Ring<Tile::kStages>& ring, const Problem& problem, const Block<Tile>& block,
    const Place& place) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = place.row + lane;
  const int column = place.column + lane * Tile::kScaleColumns;
  const bool has_b = lane < Tile::kScalesB && column < problem.n;
  const float* a = problem.a_scale + row * problem.a_scale_m_stride;
  const float* b = problem.b_scale + (has_b ? column / 128 : 0) * problem.b_scale_n_stride;
  a += block.k_begin * problem.a_scale_k_stride;
  b += block.k_begin * problem.b_scale_k_stride;
  for (int k = block.k_begin; k < block.k_end; ++k) {
    ptx::wait(block.empty(ring.stage), ring.parity ^ 1);
    const uint32_t to = block.scales(ring.stage) + lane * 4;
#pragma unroll
    for (int i = 0; i < Tile::kRows; i += 32) {
      const bool inside = row + i < problem.m;
      ptx::copy_float(
          to + i * 4, inside ? a + i * problem.a_scale_m_stride : problem.a_scale, inside);
    }
    if (lane < Tile::kScalesB) {
      ptx::copy_float(to + Tile::kRows * 4, b, has_b);
    }
    ptx::arrive_after_copies(block.full(ring.stage));
    a += problem.a_scale_k_stride;
    b += problem.b_scale_k_stride;
    ring.advance();
  }
}

template <class Tile>
__device__ __forceinline__ void load_scales(const Problem& problem, const Block<Tile>& block) {
  Ring<Tile::kStages> ring;
  for (int unit = block.first_unit; unit < block.units; unit += block.unit_step) {
    load_tile_scales(ring, problem, block, locate<Tile>(problem, unit, block.sharer));
  }
}

// The sums of one warpgroup: `kWaves` times 64 rows.
template <class Tile>
struct Sums {
  float values[Tile::kWaves][Tile::kColumns / 2];
};

// The scales of one step for the rows of one thread: its row and the one 8 further down.
template <class Tile>
struct Scales {
  float upper[Tile::kWaves];
  float lower[Tile::kWaves];
  float b[Tile::kScalesB];
};

template <class Tile>
__device__ __forceinline__ Scales<Tile> read_scales(uint32_t scales, int group) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Scales<Tile> read;
#pragma unroll
  for (int wave = 0; wave < Tile::kWaves; ++wave) {
    const int row = (group * Tile::kWaves + wave) * 64 + warp * 16 + lane / 4;
    read.upper[wave] = ptx::load_float(scales + row * 4);
    read.lower[wave] = ptx::load_float(scales + (row + 8) * 4);
  }
#pragma unroll
  for (int i = 0; i < Tile::kScalesB; ++i) {
    read.b[i] = ptx::load_float(scales + (Tile::kRows + i) * 4);
  }
  return read;
}

// Queues the multiplication of one step, for 64 rows and `columns` columns from `first_column`.
template <class Tile, int columns>
__device__ __forceinline__ void queue_step(
    float (&block_sums)[columns / 2], const Block<Tile>& block, int stage_a, int stage_b, int row,
    int first_column) {
  const uint64_t a = describe_tile(block.a(stage_a) + row * kBlockK);
  const uint64_t b = describe_tile(block.b(stage_b) + first_column * kBlockK);
  begin_multiplying();
#pragma unroll
  for (int i = 0; i < kBlockK / kInstructionK; ++i) {
    const int step = i * kInstructionK >> 4;
    multiply<columns>(block_sums, a + step, b + step, i > 0);
  }
  end_multiplying();
}

// Tells every block that fills this stage that this warp has read it.
template <class Tile>
__device__ __forceinline__ void release_stage(const Block<Tile>& block, int stage) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (Tile::kSharers > 1) {
    if (lane < Tile::kSharers) {
      ptx::arrive_remotely(block.empty(stage), block.split * Tile::kSharers + lane);
    }
  } else {
    if (lane == 0) ptx::arrive(block.empty(stage));
  }
}

// sums += scale * block_sums, for the columns from `first_column`.
template <class Tile, int columns>
__device__ __forceinline__ void add_scaled(
    float (&sums)[Tile::kColumns / 2], const float (&block_sums)[columns / 2],
    const Scales<Tile>& scales, int wave, int first_column) {
  constexpr int kStep = greatest_divisor(Tile::kScaleColumns, columns);
#pragma unroll
  for (int column = 0; column < columns; column += kStep) {
    const float scale_b = scales.b[(first_column + column) / Tile::kScaleColumns];
    const float upper = scales.upper[wave] * scale_b;
    const float lower = scales.lower[wave] * scale_b;
#pragma unroll
    for (int j = 0; j < kStep / 8; ++j) {
      const int from = (column / 8 + j) * 4;
      float* to = &sums[first_column / 2 + from];
      to[0] = fmaf(upper, block_sums[from], to[0]);
      to[1] = fmaf(upper, block_sums[from + 1], to[1]);
      to[2] = fmaf(lower, block_sums[from + 2], to[2]);
      to[3] = fmaf(lower, block_sums[from + 3], to[3]);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void clear(Sums<Tile>& sums) {
#pragma unroll
  for (int wave = 0; wave < Tile::kWaves; ++wave) {
#pragma unroll
    for (float& value : sums.values[wave]) value = 0.0f;
  }
}

// Multiplies the steps of K of one tile, each on its own. `group` is this warpgroup. While it
// scales its sums, the other warpgroup multiplies.
template <class Tile>
__device__ __forceinline__ void multiply_tile(
    Sums<Tile>& sums, Ring<Tile::kStages>& ring, const Block<Tile>& block, int group) {
  for (int k = block.k_begin; k < block.k_end; ++k) {
    ptx::wait(block.full(ring.stage), ring.parity);
    const Scales<Tile> scales = read_scales<Tile>(block.scales(ring.stage), group);
#pragma unroll
    for (int wave = 0; wave < Tile::kWaves; ++wave) {
      float block_sums[Tile::kColumns / 2];
      const int row = (group * Tile::kWaves + wave) * 64;
      const int stage_b = Tile::kKeepsB ? k : ring.stage;
      queue_step<Tile, Tile::kColumns>(block_sums, block, ring.stage, stage_b, row, 0);
      wait_for_sums<0>();
      if (wave == Tile::kWaves - 1) release_stage(block, ring.stage);
      add_scaled<Tile, Tile::kColumns>(sums.values[wave], block_sums, scales, wave, 0);
    }
    ring.advance();
  }
}

// `steps` steps of K with the columns in parts, of which one is scaled while the next multiplies.
// The compiler loses sight of multiplications that are under way when a loop repeats, so the matrix
// unit runs dry once in that many steps.
template <class Tile, int steps>
__device__ __forceinline__ void multiply_steps_in_parts(
    Sums<Tile>& sums, Ring<Tile::kStages>& ring, const Block<Tile>& block, int group) {
  constexpr int kLeft = Tile::kLeftColumns;
  constexpr int kRight = Tile::kRightColumns;
  const int row = group * 64;
  float left[kLeft / 2];
  float right[kRight / 2];
  ptx::wait(block.full(ring.stage), ring.parity);
  Scales<Tile> scales = read_scales<Tile>(block.scales(ring.stage), group);
  queue_step<Tile, kLeft>(left, block, ring.stage, ring.stage, row, 0);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    const Scales<Tile> now = scales;
#pragma unroll
    for (int column = 0; column < Tile::kColumns; column += Tile::kPairColumns) {
      queue_step<Tile, kRight>(right, block, stage, stage, row, column + kLeft);
      wait_for_sums<1>();
      add_scaled<Tile, kLeft>(sums.values[0], left, now, 0, column);
      const bool ends = column + Tile::kPairColumns == Tile::kColumns;
      if (!ends) {
        queue_step<Tile, kLeft>(left, block, stage, stage, row, column + Tile::kPairColumns);
        wait_for_sums<1>();
      } else if (step < steps - 1) {
        ring.advance();
        ptx::wait(block.full(ring.stage), ring.parity);
        scales = read_scales<Tile>(block.scales(ring.stage), group);
        queue_step<Tile, kLeft>(left, block, ring.stage, ring.stage, row, 0);
        wait_for_sums<1>();
      } else {
        ring.advance();
        wait_for_sums<0>();
      }
      if (ends) release_stage(block, stage);
      add_scaled<Tile, kRight>(sums.values[0], right, now, 0, column + kLeft);
    }
  }
}

// `steps` steps of K by all columns, with two sets of sums: while one is scaled, the next step
// multiplies into the other.
template <class Tile, int steps>
__device__ __forceinline__ void multiply_steps_in_turns(
    Sums<Tile>& sums, Ring<Tile::kStages>& ring, const Block<Tile>& block, int group) {
  static_assert(Tile::kWaves == 1);
  const int row = group * 64;
  float sets[2][Tile::kColumns / 2];
  ptx::wait(block.full(ring.stage), ring.parity);
  Scales<Tile> scales = read_scales<Tile>(block.scales(ring.stage), group);
  queue_step<Tile, Tile::kColumns>(sets[0], block, ring.stage, ring.stage, row, 0);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    const Scales<Tile> now = scales;
    ring.advance();
    if (step < steps - 1) {
      ptx::wait(block.full(ring.stage), ring.parity);
      scales = read_scales<Tile>(block.scales(ring.stage), group);
      float(&next)[Tile::kColumns / 2] = sets[(step + 1) % 2];
      queue_step<Tile, Tile::kColumns>(next, block, ring.stage, ring.stage, row, 0);
      wait_for_sums<1>();
    } else {
      wait_for_sums<0>();
    }
    release_stage(block, stage);
    add_scaled<Tile, Tile::kColumns>(sums.values[0], sets[step % 2], now, 0, 0);
  }
}

template <class Tile>
__device__ __forceinline__ void multiply_tile_in_turns(
    Sums<Tile>& sums, Ring<Tile::kStages>& ring, const Block<Tile>& block, int group) {
  constexpr int kSteps = 8;
  int k = block.k_begin;
  for (; k + kSteps <= block.k_end; k += kSteps) {
    multiply_steps_in_turns<Tile, kSteps>(sums, ring, block, group);
  }
  for (; k + 2 <= block.k_end; k += 2) {
    multiply_steps_in_turns<Tile, 2>(sums, ring, block, group);
  }
  if (k < block.k_end) multiply_steps_in_turns<Tile, 1>(sums, ring, block, group);
}

template <class Tile>
__device__ __forceinline__ void multiply_tile_in_parts(
    Sums<Tile>& sums, Ring<Tile::kStages>& ring, const Block<Tile>& block, int group) {
  constexpr int kSteps = 16 / Tile::kParts;
  int k = block.k_begin;
  for (; k + kSteps <= block.k_end; k += kSteps) {
    multiply_steps_in_parts<Tile, kSteps>(sums, ring, block, group);
  }
  for (; k < block.k_end; ++k) multiply_steps_in_parts<Tile, 1>(sums, ring, block, group);
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Rounds the sums and hands them to the copy engine, which clips at the edges of C. A warp writes
// its 16 rows on its own, so warps do not wait for each other. Where some of them are also the tile
// above's, both write the same bits.
template <class Tile>
__device__ __forceinline__ void store_tile(
    const Sums<Tile>& sums, const CUtensorMap& c_map, const Problem& problem,
    const Block<Tile>& block, const Place& place, int group) {
  constexpr int kPitch = Tile::kPieceColumns * 2;
  constexpr int kSlot = (Tile::kPieceBytes + 1023) / 1024 * 1024;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t buffers =
      block.shared + Tile::kAtResult + (group * 4 + warp) * Tile::kPieceBuffers * kSlot;
  // Of four 8 x 8 matrices, this lane names the place of one row.
  const int row = lane % 16;
  const int right = lane / 16;
#pragma unroll
  for (int wave = 0; wave < Tile::kWaves; ++wave) {
#pragma unroll
    for (int piece = 0; piece < Tile::kPieces; ++piece) {
      const uint32_t buffer =
          buffers + (wave * Tile::kPieces + piece) % Tile::kPieceBuffers * kSlot;
      if (lane == 0) {
        // The tile before this one may have ended with the buffer that this one begins with.
        if (wave == 0 && piece == 0) {
          ptx::wait_stores_read<0>();
        } else {
          ptx::wait_stores_read<Tile::kPieceBuffers - 1>();
        }
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < Tile::kPieceColumns / 8; j += 2) {
        const int unit = Tile::kPieceSwizzled ? ((j + right) ^ (row % 8)) : j + right;
        const float* from = &sums.values[wave][(piece * (Tile::kPieceColumns / 8) + j) * 4];
        ptx::store_matrices(
            buffer + row * kPitch + unit * 16, pack(from[0], from[1]), pack(from[2], from[3]),
            pack(from[4], from[5]), pack(from[6], from[7]));
      }
      ptx::fence_for_bulk();
      __syncwarp();
      const int first_row = place.row + (group * Tile::kWaves + wave) * 64 + warp * 16;
      if (lane == 0 && first_row + 16 > place.own_row && first_row < problem.m) {
        ptx::store_tile(&c_map, buffer, place.column + piece * Tile::kPieceColumns, first_row);
      }
    }
  }
}

// Leaves the sums of a part of K where the other blocks of the cluster find them.
template <class Tile>
__device__ __forceinline__ void leave_partial_sums(
    const Sums<Tile>& sums, const Block<Tile>& block, int group) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Every warpgroup has read its last stage, which the sums overwrite.
  asm volatile("bar.sync 1, %0;" ::"n"(Tile::kGroups * kGroupThreads) : "memory");
#pragma unroll
  for (int wave = 0; wave < Tile::kWaves; ++wave) {
    const int row = (group * Tile::kWaves + wave) * 64 + warp * 16 + lane / 4;
    const uint32_t to = block.shared + (row * Tile::kPartialPitch + lane % 4 * 2) * 4;
#pragma unroll
    for (int j = 0; j < Tile::kColumns / 8; ++j) {
      const float* from = &sums.values[wave][j * 4];
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + j * 32), "f"(from[0]), "f"(from[1])
          : "memory");
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + j * 32 + 8 * Tile::kPartialPitch * 4),
          "f"(from[2]), "f"(from[3])
          : "memory");
    }
  }
}

// Adds up the parts of K in a fixed order; each block of the cluster finishes some of the rows.
template <class Tile>
__device__ __forceinline__ void add_partial_sums(
    const Problem& problem, const Block<Tile>& block, const Place& place) {
  constexpr int kRows = Tile::kRows / Tile::kSplits;
  constexpr int kVectors = Tile::kColumns / 8;
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kVectors;
       item += Tile::kGroups * kGroupThreads) {
    const int row = block.split * kRows + item / kVectors;
    const int column = item % kVectors * 8;
    const uint32_t at = block.shared + (row * Tile::kPartialPitch + column) * 4;
    float sums[8] = {};
#pragma unroll
    for (int split = 0; split < Tile::kSplits; ++split) {
      const uint32_t there = ptx::remote_address(at, split * Tile::kSharers + block.sharer);
      const float4 low = ptx::load_remote(there);
      const float4 high = ptx::load_remote(there + 16);
      sums[0] += low.x, sums[1] += low.y, sums[2] += low.z, sums[3] += low.w;
      sums[4] += high.x, sums[5] += high.y, sums[6] += high.z, sums[7] += high.w;
    }
    const int c_row = place.row + row;
    const int c_column = place.column + column;
    if (c_row >= place.own_row && c_row < problem.m && c_column < problem.n) {
      const uint4 packed = {
          pack(sums[0], sums[1]), pack(sums[2], sums[3]), pack(sums[4], sums[5]),
          pack(sums[6], sums[7])};
      *reinterpret_cast<uint4*>(problem.c + c_row * problem.c_stride + c_column) = packed;
    }
  }
}

// Readies the maps and the barriers, before anything that waits for another kernel.
template <class Tile>
__device__ __forceinline__ void prepare_block(
    const CUtensorMap& a_map, const CUtensorMap& b_map, const CUtensorMap& c_map,
    const Block<Tile>& block) {
  if (threadIdx.x == Tile::kGroups * kGroupThreads) {
    ptx::prefetch_map(&a_map);
    ptx::prefetch_map(&b_map);
    if (Tile::kSplits == 1) ptx::prefetch_map(&c_map);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::init_barrier(block.full(stage), Tile::kLoadArrivals + 32);
      ptx::init_barrier(block.empty(stage), Tile::kGroups * 4 * Tile::kSharers);
    }
    ptx::fence_barrier_init();
  }
  if (Tile::kCluster > 1) {
    ptx::cluster_meet();
  } else {
    __syncthreads();
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm) gemm_kernel(
    const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
    const __grid_constant__ CUtensorMap c_map, const __grid_constant__ Problem problem) {
  extern __shared__ uint8_t shared_memory[];
  const Block<Tile> block = find_block<Tile>(problem, ptx::shared_address(shared_memory));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  prepare_block(a_map, b_map, c_map, block);
  if (!problem.waits_late) ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();

  Sums<Tile> sums;
  if (warp >= Tile::kGroups * 4) {
    ptx::give_registers<Tile::kLoadRegisters>();
    if (warp == Tile::kGroups * 4) {
      if (threadIdx.x % 32 == 0) load_operands(a_map, b_map, problem, block);
    } else if (warp == Tile::kGroups * 4 + 1) {
      load_scales(problem, block);
    }
    if constexpr (Tile::kSplits > 1) {
      ptx::cluster_sync();
    }
  } else {
    ptx::take_registers<Tile::kMathRegisters>();
    const int group = __shfl_sync(0xffffffff, warp / 4, 0);
    Ring<Tile::kStages> ring;
    for (int unit = block.first_unit; unit < block.units; unit += block.unit_step) {
      const Place place = locate<Tile>(problem, unit, block.sharer);
      clear(sums);
      if constexpr (Tile::kParts > 1) {
        multiply_tile_in_parts(sums, ring, block, group);
      } else {
        multiply_tile_in_turns(sums, ring, block, group);
      }
      if constexpr (Tile::kSplits == 1) {
        store_tile(sums, c_map, problem, block, place, group);
      } else {
        // The grid of a split product holds every tile, so this happens once.
        leave_partial_sums(sums, block, group);
        ptx::cluster_sync();
        add_partial_sums(problem, block, place);
      }
    }
    if (Tile::kSplits == 1 && threadIdx.x % 32 == 0) ptx::wait_stores_read<0>();
  }
  // Nobody leaves while others may still write or read its shared memory.
  if (Tile::kCluster > 1) ptx::cluster_meet();
  // Whoever waits for this kernel also waits for the one before it.
  if (problem.waits_late) ptx::wait_for_previous_kernel();
}

}  // namespace gemm::cuda
