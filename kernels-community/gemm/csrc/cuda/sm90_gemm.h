// The product on Hopper: one warp of a block loads, one loads scales, the others multiply.
//
// Tiles of A and B travel through a ring of stages in shared memory. `full[stage]` completes when
// the copy engine and the scales have arrived, `empty[stage]` when every warp that reads the stage,
// in all blocks that share it, is done.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

#include "ptx.h"
#include "sm90_block.h"
#include "sm90_multiply.h"
#include "tile.h"

namespace gemm::cuda {

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
