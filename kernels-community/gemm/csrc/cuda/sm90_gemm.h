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
  int m_units;  // places of clusters along M and N
  int n_units;
  int raster;  // units along M that are walked before the next N, to stay in the L2 cache
};

struct Place {
  int m_block;
  int n_block;
};

// Where the tile of number `unit` lies, for the block `sharer` of its cluster.
template <class Tile>
__device__ __forceinline__ Place locate(const Problem& problem, int unit, int sharer) {
  const int per_band = problem.raster * problem.n_units;
  const int band = unit / per_band;
  const int first = band * problem.raster;
  const int height = min(problem.raster, problem.m_units - first);
  const int within = unit - band * per_band;
  const int m = first + within % height;
  const int n = within / height;
  constexpr int kAlongM = Tile::kShare == Share::kB ? Tile::kSharers : 1;
  constexpr int kAlongN = Tile::kShare == Share::kA ? Tile::kSharers : 1;
  return {m * kAlongM + (kAlongM > 1 ? sharer : 0), n * kAlongN + (kAlongN > 1 ? sharer : 0)};
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
    return shared + Tile::kAt_B + stage * Tile::kBytesB;
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
  block.units = problem.m_units * problem.n_units;
  block.k_begin = problem.k_blocks * block.split / Tile::kSplits;
  block.k_end = problem.k_blocks * (block.split + 1) / Tile::kSplits;
  return block;
}

// One thread asks the copy engine for every tile of A and B.
template <class Tile>
__device__ __forceinline__ void load_operands(
    const CUtensorMap& a_map, const CUtensorMap& b_map, const Problem& problem,
    const Block<Tile>& block) {
  constexpr uint32_t kBytes = Tile::kBytesA + Tile::kBytesB;
  const auto sharing =
      static_cast<uint16_t>(((1 << Tile::kSharers) - 1) << (block.split * Tile::kSharers));
  Ring<Tile::kStages> ring;
  for (int unit = block.first_unit; unit < block.units; unit += block.unit_step) {
    const Place place = locate<Tile>(problem, unit, block.sharer);
    const int row_a = place.m_block * Tile::kRows;
    const int row_b = place.n_block * Tile::kColumns;
    for (int k = block.k_begin; k < block.k_end; ++k) {
      ptx::wait(block.empty(ring.stage), ring.parity ^ 1);
      const uint32_t full = block.full(ring.stage);
      ptx::arrive_expecting(full, kBytes);
      if constexpr (Tile::kShare == Share::kA) {
        const int part = block.sharer * Tile::kLoadRowsA;
        ptx::load_tile_shared(
            block.a(ring.stage) + part * kBlockK, &a_map, full, k * kBlockK, row_a + part,
            sharing);
      } else {
        ptx::load_tile(block.a(ring.stage), &a_map, full, k * kBlockK, row_a);
      }
      if constexpr (Tile::kShare == Share::kB) {
        const int part = block.sharer * Tile::kLoadRowsB;
        ptx::load_tile_shared(
            block.b(ring.stage) + part * kBlockK, &b_map, full, k * kBlockK, row_b + part,
            sharing);
      } else {
        ptx::load_tile(block.b(ring.stage), &b_map, full, k * kBlockK, row_b);
      }
      ring.advance();
    }
  }
}

// One warp copies the scales of every stage, with any strides.
template <class Tile>
__device__ __forceinline__ void load_scales(const Problem& problem, const Block<Tile>& block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Ring<Tile::kStages> ring;
  for (int unit = block.first_unit; unit < block.units; unit += block.unit_step) {
    const Place place = locate<Tile>(problem, unit, block.sharer);
    const int row = place.m_block * Tile::kRows + lane;
    const int column = place.n_block * Tile::kColumns + lane * Tile::kScaleColumns;
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
}

// The sums of one warpgroup: `kWaves` times 64 rows.
template <class Tile>
struct Sums {
  float values[Tile::kWaves][Tile::kColumns / 2];
};

// Multiplies the steps of K of one tile. `group` is this warpgroup.
template <class Tile>
__device__ __forceinline__ void multiply_tile(
    Sums<Tile>& sums, Ring<Tile::kStages>& ring, const Block<Tile>& block, int group) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int wave = 0; wave < Tile::kWaves; ++wave) {
#pragma unroll
    for (float& value : sums.values[wave]) value = 0.0f;
  }
  for (int k = block.k_begin; k < block.k_end; ++k) {
    ptx::wait(block.full(ring.stage), ring.parity);
    const uint32_t scales = block.scales(ring.stage);
    float scale_b[Tile::kScalesB];
#pragma unroll
    for (int i = 0; i < Tile::kScalesB; ++i) {
      scale_b[i] = ptx::load_float(scales + (Tile::kRows + i) * 4);
    }
#pragma unroll
    for (int wave = 0; wave < Tile::kWaves; ++wave) {
      const int row = (group * Tile::kWaves + wave) * 64;
      const uint32_t scale_a = scales + (row + warp * 16 + lane / 4) * 4;
      const float upper = ptx::load_float(scale_a);
      const float lower = ptx::load_float(scale_a + 8 * 4);
      const uint64_t a = describe_tile(block.a(ring.stage) + row * kBlockK);
      const uint64_t b = describe_tile(block.b(ring.stage));
      float block_sums[Tile::kColumns / 2];
      begin_multiplying();
#pragma unroll
      for (int i = 0; i < kBlockK / kInstructionK; ++i) {
        const int step = i * kInstructionK >> 4;
        multiply<Tile::kColumns>(block_sums, a + step, b + step, i > 0);
      }
      end_multiplying();
      wait_for_sums<0>();
      if (wave == Tile::kWaves - 1) {
        if constexpr (Tile::kSharers > 1) {
          if (lane < Tile::kSharers) {
            ptx::arrive_remotely(
                block.empty(ring.stage), block.split * Tile::kSharers + lane);
          }
        } else {
          if (lane == 0) ptx::arrive(block.empty(ring.stage));
        }
      }
#pragma unroll
      for (int part = 0; part < Tile::kScalesB; ++part) {
        const float scale_upper = upper * scale_b[part];
        const float scale_lower = lower * scale_b[part];
#pragma unroll
        for (int j = 0; j < Tile::kScaleColumns / 8; ++j) {
          const int at = (part * (Tile::kScaleColumns / 8) + j) * 4;
          float* to = &sums.values[wave][at];
          to[0] = fmaf(scale_upper, block_sums[at], to[0]);
          to[1] = fmaf(scale_upper, block_sums[at + 1], to[1]);
          to[2] = fmaf(scale_lower, block_sums[at + 2], to[2]);
          to[3] = fmaf(scale_lower, block_sums[at + 3], to[3]);
        }
      }
    }
    ring.advance();
  }
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Rounds the sums and hands them to the copy engine, which clips at the edges of C. A warp writes
// its 16 rows on its own, so warps do not wait for each other.
template <class Tile>
__device__ __forceinline__ void store_tile(
    const Sums<Tile>& sums, const CUtensorMap& c_map, const Block<Tile>& block, const Place& place,
    int group) {
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
      if (lane == 0) ptx::wait_stores_read<Tile::kPieceBuffers - 1>();
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
      if (lane == 0) {
        const int first_row =
            place.m_block * Tile::kRows + (group * Tile::kWaves + wave) * 64 + warp * 16;
        ptx::store_tile(
            &c_map, buffer, place.n_block * Tile::kColumns + piece * Tile::kPieceColumns,
            first_row);
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
    const int c_row = place.m_block * Tile::kRows + row;
    const int c_column = place.n_block * Tile::kColumns + column;
    if (c_row < problem.m && c_column < problem.n) {
      const uint4 packed = {
          pack(sums[0], sums[1]), pack(sums[2], sums[3]), pack(sums[4], sums[5]),
          pack(sums[6], sums[7])};
      *reinterpret_cast<uint4*>(problem.c + c_row * problem.c_stride + c_column) = packed;
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm) gemm_kernel(
    const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
    const __grid_constant__ CUtensorMap c_map, const __grid_constant__ Problem problem) {
  extern __shared__ uint8_t shared_memory[];
  const Block<Tile> block = find_block<Tile>(problem, ptx::shared_address(shared_memory));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp == Tile::kGroups * 4 && threadIdx.x % 32 == 0) {
    ptx::prefetch_map(&a_map);
    ptx::prefetch_map(&b_map);
    if (Tile::kSplits == 1) ptx::prefetch_map(&c_map);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::init_barrier(block.full(stage), 1 + 32);
      ptx::init_barrier(block.empty(stage), Tile::kGroups * 4 * Tile::kSharers);
    }
    ptx::fence_barrier_init();
  }
  if (Tile::kCluster > 1) {
    ptx::cluster_meet();
  } else {
    __syncthreads();
  }
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();

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
      multiply_tile(sums, ring, block, group);
      if constexpr (Tile::kSplits == 1) {
        store_tile(sums, c_map, block, place, group);
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
}

}  // namespace gemm::cuda
