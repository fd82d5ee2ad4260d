// The tiles that are compiled, and which of them serves a product.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "tile.h"

namespace gemm::cuda {

// What the choice needs to know of a Tile.
struct TileFacts {
  int rows;
  int columns;
  int along_m;  // blocks of a cluster along M, N and K
  int along_n;
  int splits;
  int blocks_per_sm;
  int threads;
  int bytes;
  int load_rows_a;
  int load_rows_b;
  int piece_columns;
  bool piece_swizzled;
  constexpr int cluster() const { return along_m * along_n * splits; }
};

template <class Tile>
constexpr TileFacts facts_of() {
  return {
      Tile::kRows,
      Tile::kColumns,
      Tile::kShare == Share::kB ? Tile::kSharers : 1,
      Tile::kShare == Share::kA ? Tile::kSharers : 1,
      Tile::kSplits,
      Tile::kBlocksPerSm,
      Tile::kThreads,
      Tile::kBytes,
      Tile::kLoadRowsA,
      Tile::kLoadRowsB,
      Tile::kPieceColumns,
      Tile::kPieceSwizzled};
}

template <class... Tiles>
struct TileList {
  static constexpr int kCount = sizeof...(Tiles);
  static constexpr std::array<TileFacts, sizeof...(Tiles)> kFacts = {facts_of<Tiles>()...};
};

using Compiled = TileList<
    Tile<2, 1, 128, Share::kNothing, 1, 1, 1>,
    Tile<2, 1, 128, Share::kB, 2, 1, 1>,
    Tile<2, 2, 128, Share::kA, 2, 1, 1>,
    Tile<2, 1, 192, Share::kB, 2, 1, 1>,
    Tile<2, 1, 144, Share::kB, 2, 1, 1>,
    Tile<2, 1, 160, Share::kB, 2, 1, 1>,
    Tile<2, 1, 96, Share::kB, 2, 1, 1>,
    Tile<1, 2, 128, Share::kNothing, 1, 1, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 1, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 2, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 4, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 8, 2>,
    Tile<1, 1, 64, Share::kNothing, 1, 2, 3>,
    Tile<1, 1, 64, Share::kNothing, 1, 4, 3>,
    Tile<1, 1, 64, Share::kNothing, 1, 8, 3>,
    Tile<2, 1, 192, Share::kNothing, 1, 2, 1>,
    Tile<2, 1, 192, Share::kB, 2, 2, 1>,
    Tile<2, 1, 128, Share::kB, 2, 2, 1>,
    Tile<2, 2, 128, Share::kB, 2, 1, 1>,
    Tile<2, 1, 128, Share::kA, 2, 1, 1>,
    Tile<2, 1, 192, Share::kA, 2, 1, 1>,
    Tile<1, 1, 64, Share::kNothing, 1, 1, 3>,
    Tile<2, 2, 128, Share::kNothing, 1, 1, 1>,
    Tile<2, 1, 192, Share::kNothing, 1, 1, 1>>;

constexpr int ceil_divide(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// How many places a cluster of this tile finds along M and N.
constexpr int count_m_units(const TileFacts& tile, int64_t m) {
  return ceil_divide(m, static_cast<int64_t>(tile.rows) * tile.along_m);
}
constexpr int count_n_units(const TileFacts& tile, int64_t n) {
  return ceil_divide(n, static_cast<int64_t>(tile.columns) * tile.along_n);
}

// The estimated time of a product, in cycles of a processor.
constexpr double estimate_cycles(
    const TileFacts& tile, int64_t m, int64_t n, int64_t k_blocks, int processors) {
  const int64_t blocks = static_cast<int64_t>(count_m_units(tile, m)) * count_n_units(tile, n) *
                         tile.cluster();
  const int rounds = ceil_divide(blocks, static_cast<int64_t>(processors) * tile.blocks_per_sm);
  const double sharing = blocks < processors ? 1.0 : tile.blocks_per_sm;
  const double step = tile.rows * tile.columns / 32.0 * 1.15 * sharing;
  const double ends = 1500.0 + (tile.splits > 1 ? 1500.0 : 0.0);
  return rounds * (step * ceil_divide(k_blocks, tile.splits) + ends);
}

constexpr int choose_tile(int64_t m, int64_t n, int64_t k_blocks, int processors) {
  int best = 0;
  double least = 0.0;
  for (int i = 0; i < Compiled::kCount; ++i) {
    const double cycles = estimate_cycles(Compiled::kFacts[i], m, n, k_blocks, processors);
    if (i == 0 || cycles < least) {
      best = i;
      least = cycles;
    }
  }
  return best;
}

// Units along M that are walked before the next N: about as many rows as columns in flight.
constexpr int choose_raster(const TileFacts& tile, int m_units, int processors) {
  const int64_t units = std::max(1, processors * tile.blocks_per_sm / tile.cluster());
  const int64_t height = static_cast<int64_t>(tile.rows) * tile.along_m;
  const int64_t width = static_cast<int64_t>(tile.columns) * tile.along_n;
  int64_t raster = 1;
  while (raster * raster * height < units * width) ++raster;
  const int bands = ceil_divide(m_units, raster);
  return ceil_divide(m_units, bands);
}

}  // namespace gemm::cuda
