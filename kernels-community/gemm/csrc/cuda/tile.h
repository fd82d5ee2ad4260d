// The shapes in which a product is cut: what a block of threads computes, and how it is laid out in
// shared memory.
#pragma once

#include <cstdint>

namespace gemm::cuda {

constexpr int kBlockK = 128;        // bytes of K in one step: a scale block, and a swizzle row
constexpr int kInstructionK = 32;   // bytes of K in one matrix instruction
constexpr int kGroupThreads = 128;  // a warpgroup
constexpr int kMostStages = 8;

// The longest K, in steps, of operands that the product's own kernel turns (sm90_turning.h).
constexpr int kMostTurnedBlocks = 2;

// Shared memory and registers of a block, and of its math and load threads, where one, two or three
// blocks share a processor (228 KB, of which each block costs 1, and 65536 registers).
struct Allowance {
  int bytes;
  int math_registers;
};
constexpr Allowance allow(int blocks_per_sm) {
  return blocks_per_sm == 1   ? Allowance{227 * 1024, 232}
         : blocks_per_sm == 2 ? Allowance{113 * 1024, 208}
                              : Allowance{75 * 1024, 112};
}

// Which operand the blocks of a cluster have in common, so that it is fetched once for all.
enum class Share { kNothing, kA, kB };

constexpr int greatest_divisor(int a, int b) { return b == 0 ? a : greatest_divisor(b, a % b); }

// One way to cut. `groups` warpgroups multiply, each `waves` times 64 rows by all the columns.
// `sharers` blocks of a cluster share an operand; `splits` of them divide K among themselves.
// With several `parts` of the columns, a warpgroup scales one while it multiplies the next. With
// one, it scales a step of K while it multiplies the next, in registers for all columns thrice.
template <
    int groups, int waves, int columns, Share share, int sharers, int splits, int blocks_per_sm,
    int parts = 1>
struct Tile {
  static constexpr int kGroups = groups;
  static constexpr int kWaves = waves;
  static constexpr int kRows = 64 * groups * waves;
  static constexpr int kColumns = columns;
  static constexpr Share kShare = share;
  static constexpr int kSharers = sharers;
  static constexpr int kSplits = splits;
  static constexpr int kCluster = sharers * splits;
  static constexpr int kParts = parts;
  static constexpr bool kKeepsB = false;  // B of all steps stays in shared memory, not in the ring
  static constexpr int kBlocksPerSm = blocks_per_sm;
  static constexpr int kThreads = (groups + 1) * kGroupThreads;
  static_assert((share == Share::kNothing) == (sharers == 1));
  static_assert(parts == 1 || (parts % 2 == 0 && columns % parts == 0 && waves == 1));

  // What one load brings, of its own part where an operand is shared.
  static constexpr int kLoadRowsA = share == Share::kA ? kRows / sharers : kRows;
  static constexpr int kLoadRowsB = share == Share::kB ? columns / sharers : columns;
  static_assert(kLoadRowsA % 8 == 0 && kLoadRowsB % 8 == 0, "parts begin at whole swizzle atoms");

  // Columns of the left and the right part of every pair of parts; the right begins at a whole
  // swizzle atom.
  static constexpr int kPairColumns = columns / (parts > 1 ? parts / 2 : 1);
  static constexpr int kLeftColumns =
      kPairColumns % 32 == 0 ? kPairColumns / 2 : (kPairColumns + 16) / 2;
  static constexpr int kRightColumns = kPairColumns - kLeftColumns;

  // Columns that surely have one scale of B in common.
  static constexpr int kScaleColumns = greatest_divisor(columns, 128);
  static constexpr int kScalesB = columns / kScaleColumns;
  static_assert(kScalesB <= 32, "a warp copies them at once");

  // Registers of a thread; the launch gives every thread the average.
  static constexpr int kMathRegisters = allow(blocks_per_sm).math_registers;
  static constexpr int kLoadRegisters = 40;

  // Who says that operands are there: the thread that asked for them.
  static constexpr int kLoadArrivals = 1;

  // Results leave in pieces of `kPieceColumns`, each warp its own 16 rows. The widest tile has room
  // for one piece of each warp, others for two.
  static constexpr int kPieceColumns =
      columns % 64 == 0   ? 64
      : columns % 48 == 0 ? 48
      : columns % 32 == 0 ? columns / 2
                          : columns;
  static_assert(kPieceColumns % 16 == 0 && columns % kPieceColumns == 0);
  static constexpr bool kPieceSwizzled = kPieceColumns == 64;
  static constexpr int kPieces = columns / kPieceColumns;
  static constexpr int kPieceBytes = 16 * kPieceColumns * 2;
  static constexpr int kPieceBuffers = waves == 1 && kPieces > 1 && columns < 256 ? 2 : 1;
  static constexpr int kResultBytes =
      splits > 1 ? 0 : groups * 4 * kPieceBuffers * ((kPieceBytes + 1023) / 1024 * 1024);

  // Shared memory: stages of A, stages of B, results, scales, barriers.
  static constexpr int kBytesA = kRows * kBlockK;
  static constexpr int kBytesB = columns * kBlockK;
  static constexpr int kScaleBytes = (kRows + (kScalesB + 3) / 4 * 4) * 4;
  static constexpr int kStageBytes = kBytesA + kBytesB + kScaleBytes + 16;
  static constexpr int kAlignment = 1024;
  static constexpr int kFitting =
      (allow(blocks_per_sm).bytes - kAlignment - kResultBytes) / kStageBytes;
  static constexpr int kStages = kFitting < kMostStages ? kFitting : kMostStages;
  static_assert(kStages >= 2);
  static constexpr int kAtB = kStages * kBytesA;
  static constexpr int kAtResult = kAtB + kStages * kBytesB;
  static constexpr int kAtScales = kAtResult + kResultBytes;
  static constexpr int kAtBarriers = kAtScales + kStages * kScaleBytes;
  static constexpr int kBytes = kAtBarriers + kStages * 16 + kAlignment;

  // The partial sums of a split product, in the place of the stages. The padding spreads the rows
  // over the banks.
  static constexpr int kPartialPitch = columns + 8;
  static_assert(splits == 1 || kRows * kPartialPitch * 4 <= kAtResult);
  static_assert(kRows % splits == 0);
};

}  // namespace gemm::cuda
