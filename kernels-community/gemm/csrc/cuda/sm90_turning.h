// The product on Hopper of operands that lie the other way, for a short K: a block turns what it
// needs by itself, so there is no copy of the operands, and no launch that makes one.
//
// The matrix unit reads 8-bit operands with K inside only. A block walks down strips of C, 128
// columns wide. A strip's part of B is turned once and stays in shared memory. Tiles of A come as
// they lie into a ring of their own, from where a warpgroup turns them into that of sm90_block.h.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "ptx.h"
#include "raster.h"
#include "sm90_block.h"
#include "sm90_gemm.h"
#include "sm90_multiply.h"
#include "tile.h"

namespace gemm::cuda {

// Shared memory: turned stages of A, B of the strip, stages as they lie, results, scales, barriers.
struct TurningTile : Tile<2, 1, 128, Share::kNothing, 1, 1, 1> {
  static constexpr bool kKeepsB = true;

  // Two warpgroups multiply, one loads, one turns.
  static constexpr int kTurningWarps = 4;
  static constexpr int kThreads = (kGroups + 2) * kGroupThreads;
  static constexpr int kMathRegisters = 184;
  static constexpr int kTurningRegisters = 80;
  static constexpr int kLoadArrivals = kTurningWarps;

  static constexpr int kBytesStage = kBlockK * 128;
  static_assert(kBytesStage == kBytesA && kBytesStage == kBytesB);
  static constexpr int kStages = 3;
  static constexpr int kLyingStages = 4;
  static constexpr int kAtB = kStages * kBytesStage;
  static constexpr int kAtLying = kAtB + kMostTurnedBlocks * kBytesStage;
  static constexpr int kAtResult = kAtLying + kLyingStages * kBytesStage;
  static constexpr int kAtScales = kAtResult + kResultBytes;
  static constexpr int kAtBarriers = kAtScales + kStages * kScaleBytes;
  static constexpr int kBytes =
      kAtBarriers + (kStages * 2 + kLyingStages * 2 + 2) * 8 + kAlignment;
  static_assert(kBytes <= allow(1).bytes);
};

// What a block has beside Block: a ring of stages as they lie, and two barriers for its strip.
struct Lying {
  uint32_t shared;
  __device__ __forceinline__ uint32_t stage(int stage) const {
    return shared + TurningTile::kAtLying + stage * TurningTile::kBytesStage;
  }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared + TurningTile::kAtBarriers + (TurningTile::kStages * 2 + stage) * 8;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const {
    return full(TurningTile::kLyingStages + stage);
  }
  __device__ __forceinline__ uint32_t strip_turned() const {
    return full(TurningTile::kLyingStages * 2);
  }
  __device__ __forceinline__ uint32_t strip_done() const {
    return full(TurningTile::kLyingStages * 2 + 1);
  }
};

// Calls `begin_strip(n)` and then `do_tile(place)` for all tiles of each strip of this block. What
// runs at the same time writes neighbouring strips, and so whole rows of C.
template <class BeginStrip, class DoTile>
__device__ __forceinline__ void walk_strips(
    const Raster& raster, const BeginStrip& begin_strip, const DoTile& do_tile) {
  const int units = count_strips(raster);
  for (int unit = static_cast<int>(blockIdx.x); unit < units;
       unit += static_cast<int>(gridDim.x)) {
    const int n = unit % raster.n_units;
    const int first = unit / raster.n_units * raster.band;
    const int end = min(first + raster.band, raster.m_units);
    begin_strip(n);
    for (int m = first; m < end; ++m) {
      const int row = m * TurningTile::kRows;
      do_tile(Place{row, row, n * TurningTile::kColumns});
    }
  }
}

// One thread asks the copy engine for every stage: those of a strip of B, then each tile's of A.
__device__ __forceinline__ void load_as_they_lie(
    const CUtensorMap& a_map, const CUtensorMap& b_map, const Problem& problem,
    const Lying& lying) {
  Ring<TurningTile::kLyingStages> ring;
  const auto load = [&](const CUtensorMap& map, int row) {
    for (int k = 0; k < problem.k_blocks; ++k) {
      ptx::wait(lying.empty(ring.stage), ring.parity ^ 1);
      const uint32_t full = lying.full(ring.stage);
      ptx::arrive_expecting(full, TurningTile::kBytesStage);
      ptx::load_tile(lying.stage(ring.stage), &map, full, row, k * kBlockK);
      ring.advance();
    }
  };
  walk_strips(
      problem.raster, [&](int n) { load(b_map, n * TurningTile::kColumns); },
      [&](const Place& place) { load(a_map, place.row); });
}

// How a lane takes part in turning 16 rows of 32 K.
struct Turner {
  uint32_t k;      // of the 32, whose 16 bytes this lane names
  uint32_t row;    // of the 16, whose bytes this lane places
  uint32_t upper;  // which bytes of two registers are four K of the upper row, and of the lower
  uint32_t lower;
};

// `ldmatrix` gives a lane pairs of bytes: of two rows, at K 4 i + {0, 1} from one matrix and 4 i +
// {2, 3} from the next, i its place in a quad. In the right half of a quad the two are exchanged,
// and in the second half of a warp the two rows, so that eight rows that are read or written at
// once lie in eight different places of a swizzle atom.
__device__ __forceinline__ Turner make_turner() {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t in_quad = lane % 8 / 2;
  const uint32_t k = lane / 16 * 16 + in_quad * 4 + (lane / 8 + in_quad / 2) % 2 * 2 + lane % 2;
  const uint32_t row = lane % 8 * 2 + (lane / 4 + lane / 8) % 2;
  const uint32_t even = lane % 4 < 2 ? 0x6420 : 0x2064;
  const uint32_t odd = lane % 4 < 2 ? 0x7531 : 0x3175;
  return lane < 16 ? Turner{k, row, even, odd} : Turner{k, row, odd, even};
}

// Turns a stage as it lies to one with K inside; each warp 32 of its 128 rows. Reads all before it
// writes, so that it waits for shared memory once.
__device__ __forceinline__ void turn_stage(const Turner& turner, uint32_t from, uint32_t to) {
  constexpr uint32_t kHalves = 2;  // of 16 rows
  constexpr uint32_t kKParts = kBlockK / kInstructionK;
  const uint32_t first = threadIdx.x / 32 % 4 * kHalves;
  const uint32_t right = threadIdx.x % 32 / 16;
  uint32_t pairs[kHalves][kKParts][4];
#pragma unroll
  for (uint32_t half = 0; half < kHalves; ++half) {
#pragma unroll
    for (uint32_t part = 0; part < kKParts; ++part) {
      const uint32_t k = part * kInstructionK + turner.k;
      ptx::load_matrices_turned(
          pairs[half][part], from + k * 128 + ((first + half) ^ k % 8) * 16);
    }
  }
#pragma unroll
  for (uint32_t half = 0; half < kHalves; ++half) {
#pragma unroll
    for (uint32_t part = 0; part < kKParts; ++part) {
      const uint32_t(&read)[4] = pairs[half][part];
      const uint32_t unit = (part * 2 + right) ^ turner.row % 8;
      ptx::store_matrices(
          to + ((first + half) * 16 + turner.row) * kBlockK + unit * 16,
          __byte_perm(read[0], read[1], turner.upper), __byte_perm(read[0], read[1], turner.lower),
          __byte_perm(read[2], read[3], turner.upper), __byte_perm(read[2], read[3], turner.lower));
    }
  }
}

// A warpgroup turns every stage, of B to where it stays, of A into the ring.
__device__ __forceinline__ void turn_operands(
    const Problem& problem, const Block<TurningTile>& block, const Lying& lying) {
  const bool speaks = threadIdx.x % 32 == 0;
  const Turner turner = make_turner();
  Ring<TurningTile::kLyingStages> from;
  Ring<TurningTile::kStages> to;
  Ring<1> strip;
  const auto turn = [&](uint32_t target) {
    ptx::wait(lying.full(from.stage), from.parity);
    turn_stage(turner, lying.stage(from.stage), target);
    ptx::fence_for_bulk();
    __syncwarp();
    if (speaks) ptx::arrive(lying.empty(from.stage));
    from.advance();
  };
  const auto turn_strip = [&](int) {
    ptx::wait(lying.strip_done(), strip.parity ^ 1);
    for (int k = 0; k < problem.k_blocks; ++k) turn(block.b(k));
    if (speaks) ptx::arrive(lying.strip_turned());
    strip.advance();
  };
  walk_strips(problem.raster, turn_strip, [&](const Place&) {
    for (int k = 0; k < problem.k_blocks; ++k) {
      ptx::wait(block.empty(to.stage), to.parity ^ 1);
      turn(block.a(to.stage));
      if (speaks) ptx::arrive(block.full(to.stage));
      to.advance();
    }
  });
}

__device__ __forceinline__ void multiply_strips(
    const CUtensorMap& c_map, const Problem& problem, const Block<TurningTile>& block,
    const Lying& lying, int group) {
  const bool speaks = threadIdx.x % 32 == 0;
  Ring<TurningTile::kStages> ring;
  Ring<1> strip;
  bool first = true;
  const auto begin_strip = [&](int) {
    // The sums of the last tile are there, so nobody multiplies by the strip before this one.
    if (!first && speaks) ptx::arrive(lying.strip_done());
    first = false;
    ptx::wait(lying.strip_turned(), strip.parity);
    strip.advance();
  };
  walk_strips(problem.raster, begin_strip, [&](const Place& place) {
    Sums<TurningTile> sums;
    clear(sums);
    multiply_tile(sums, ring, block, group);
    store_tile(sums, c_map, problem, block, place, group);
  });
  if (speaks) ptx::wait_stores_read<0>();
}

static __global__ void __launch_bounds__(TurningTile::kThreads, 1) turning_kernel(
    const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
    const __grid_constant__ CUtensorMap c_map, const __grid_constant__ Problem problem) {
  extern __shared__ uint8_t shared_memory[];
  const auto block = find_block<TurningTile>(problem, ptx::shared_address(shared_memory));
  const Lying lying = {block.shared};
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < TurningTile::kLyingStages; ++stage) {
      ptx::init_barrier(lying.full(stage), 1);
      ptx::init_barrier(lying.empty(stage), TurningTile::kTurningWarps);
    }
    ptx::init_barrier(lying.strip_turned(), TurningTile::kTurningWarps);
    ptx::init_barrier(lying.strip_done(), TurningTile::kGroups * 4);
  }
  prepare_block(a_map, b_map, c_map, block);
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  if (group < TurningTile::kGroups) {
    ptx::take_registers<TurningTile::kMathRegisters>();
    multiply_strips(c_map, problem, block, lying, group);
  } else if (group == TurningTile::kGroups) {
    ptx::give_registers<TurningTile::kLoadRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (warp == 0 && threadIdx.x % 32 == 0) load_as_they_lie(a_map, b_map, problem, lying);
    if (warp == 1) {
      Ring<TurningTile::kStages> ring;
      walk_strips(
          problem.raster, [](int) {},
          [&](const Place& place) { load_tile_scales(ring, problem, block, place); });
    }
  } else {
    ptx::give_registers<TurningTile::kTurningRegisters>();
    turn_operands(problem, block, lying);
  }
}

}  // namespace gemm::cuda
