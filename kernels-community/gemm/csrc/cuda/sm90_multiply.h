// How a warpgroup multiplies the steps of K of one tile, and scales what it gets.
//
// The matrix instruction sums with fewer bits than float32 has, so each 128 of K start from zero,
// and are then scaled and added to float32 sums in registers. While one step or part of it is
// scaled, another multiplies.
#pragma once

#include <cstdint>

#include "ptx.h"
#include "sm90_block.h"
#include "tile.h"
#include "wgmma.h"

namespace gemm::cuda {

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

}  // namespace gemm::cuda
