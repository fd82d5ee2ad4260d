// The tiles that are compiled, what each costs, and which of them serve a product.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "raster.h"
#include "tile.h"

namespace gemm::cuda {

// What a tile takes, in microseconds: a step of K of the tiles that run at once, the rest of a
// tile, the rest of a launch. Fitted to the times of 24 shapes on an H200 (docs/kernels/gemm.md).
struct Cost {
  double step;
  double end;
  double launch;
};

// What the choice and the launch need to know of a Tile.
struct TileFacts {
  int rows;
  int columns;
  int along_m;  // blocks of a cluster along M and N
  int along_n;
  int splits;  // and along K
  int blocks_per_sm;
  int threads;
  int bytes;
  int load_rows_a;
  int load_rows_b;
  int piece_columns;
  bool piece_swizzled;
  Cost cost;
  constexpr int cluster() const { return along_m * along_n * splits; }
};

template <class Tile>
constexpr TileFacts facts_of(Cost cost) {
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
      Tile::kPieceSwizzled,
      cost};
}

template <class... Tiles>
struct TileList {
  static constexpr int kCount = sizeof...(Tiles);
  static constexpr std::array<TileFacts, kCount> with(const std::array<Cost, kCount>& costs) {
    int i = 0;
    return {facts_of<Tiles>(costs[i++])...};
  }
};

using Compiled = TileList<
    Tile<2, 1, 128, Share::kNothing, 1, 1, 1>,
    Tile<2, 2, 128, Share::kA, 2, 1, 1>,
    Tile<2, 1, 192, Share::kNothing, 1, 1, 1, 2>,
    Tile<2, 1, 160, Share::kNothing, 1, 1, 1, 2>,
    Tile<2, 1, 144, Share::kNothing, 1, 1, 1, 2>,
    Tile<2, 1, 96, Share::kB, 2, 1, 1>,
    Tile<2, 1, 192, Share::kNothing, 1, 2, 1>,
    Tile<1, 1, 128, Share::kNothing, 1, 1, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 2, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 4, 2>,
    Tile<1, 1, 64, Share::kNothing, 1, 1, 3>,
    Tile<1, 1, 64, Share::kNothing, 1, 2, 3>,
    Tile<1, 1, 64, Share::kNothing, 1, 4, 3>,
    Tile<2, 1, 128, Share::kNothing, 1, 2, 1>>;

inline constexpr std::array<TileFacts, Compiled::kCount> kTiles = Compiled::with({{
    {0.469, 0.46, 2.3},
    {0.875, 1.26, 3.0},
    {0.603, 0.86, 2.5},
    {0.525, 0.83, 2.2},
    {0.499, 0.88, 2.1},
    {0.378, 0.93, 0.0},
    {0.693, 5.12, 0.0},
    {0.500, 0.77, 1.0},
    {0.613, 2.18, 1.8},
    {0.875, 2.55, 0.8},
    {0.392, 0.25, 1.7},
    {0.272, 2.26, 3.9},
    {0.255, 0.14, 5.2},
    {0.469, 2.2, 1.8},
}});

constexpr double kCacheBytesPerMicrosecond = 9.0e6;
constexpr double kStepAlone = 0.67;  // of a step's time, where nothing runs beside it
constexpr double kTailStart = 1.0;   // microseconds until the second launch of a plan is under way

struct Sizes {
  int64_t m;
  int64_t n;
  int64_t k_blocks;
  bool operator==(const Sizes&) const = default;
};

constexpr int ceil_divide(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// How many places a cluster of this tile finds along M and N.
constexpr int count_m_units(const TileFacts& tile, int64_t m) {
  return ceil_divide(m, static_cast<int64_t>(tile.rows) * tile.along_m);
}
constexpr int count_n_units(const TileFacts& tile, int64_t n) {
  return ceil_divide(n, static_cast<int64_t>(tile.columns) * tile.along_n);
}

// Rows of A that a block loads in one step: a tile higher than the matrix leaves out the rest.
constexpr int64_t count_loaded_rows(int tile_rows, int64_t m) {
  return std::min<int64_t>(tile_rows, (m + 7) / 8 * 8);
}

constexpr double estimate(const TileFacts& tile, const Sizes& sizes, int processors) {
  const int64_t blocks = static_cast<int64_t>(count_m_units(tile, sizes.m)) *
                         count_n_units(tile, sizes.n) * tile.cluster();
  const int64_t places = static_cast<int64_t>(processors) * tile.blocks_per_sm;
  const int64_t rounds = ceil_divide(blocks, places);
  const int64_t steps = ceil_divide(sizes.k_blocks, tile.splits);
  const double load =
      rounds > 1 ? 1.0
                 : kStepAlone + (1.0 - kStepAlone) * static_cast<double>(blocks) /
                                    static_cast<double>(places);
  const double bytes = static_cast<double>(blocks * steps * kBlockK) *
                       static_cast<double>(count_loaded_rows(tile.rows, sizes.m) + tile.columns);
  const double tile_time = static_cast<double>(steps) * tile.cost.step * load + tile.cost.end;
  const double computing = static_cast<double>(rounds) * tile_time;
  return tile.cost.launch + std::max(computing, bytes / kCacheBytesPerMicrosecond);
}

// A tile for the rows before `split`, and one for the others, if there are any.
struct Plan {
  int tile;
  int64_t split;
  int tail_tile;
  double microseconds;
};

constexpr Plan choose_one(const Sizes& sizes, int processors) {
  Plan best{0, sizes.m, 0, 0.0};
  for (int i = 0; i < Compiled::kCount; ++i) {
    const double time = estimate(kTiles[i], sizes, processors);
    if (i == 0 || time < best.microseconds) best = {i, sizes.m, 0, time};
  }
  return best;
}

// Tiles seldom fill the last round of processors. Where it is poorly filled, the rows that do not
// fit into whole rounds are cut in another way, and run while the last of those rounds ends.
constexpr Plan choose_plan(const Sizes& sizes, int processors) {
  Plan best = choose_one(sizes, processors);
  for (int i = 0; i < Compiled::kCount; ++i) {
    const TileFacts& tile = kTiles[i];
    if (tile.splits > 1 || tile.blocks_per_sm > 1) continue;
    const int64_t m_units = count_m_units(tile, sizes.m);
    const int64_t n_units = count_n_units(tile, sizes.n);
    const int64_t at_once = processors / tile.cluster();
    const int64_t rounds = m_units * n_units / at_once;
    const int64_t whole = rounds * at_once / n_units;  // units along M
    if (rounds == 0 || whole == 0 || whole >= m_units) continue;
    const int64_t split = whole * tile.rows * tile.along_m;
    const Plan tail = choose_one({sizes.m - split, sizes.n, sizes.k_blocks}, processors);
    const double time = estimate(tile, {split, sizes.n, sizes.k_blocks}, processors) + kTailStart +
                        tail.microseconds - kTiles[tail.tile].cost.launch;
    if (tail.tile != i && time < best.microseconds) best = {i, split, tail.tile, time};
  }
  return best;
}

constexpr Raster choose_raster(const TileFacts& tile, const Sizes& sizes, int processors) {
  const int m_units = count_m_units(tile, sizes.m);
  const int64_t at_once = std::max(1, processors * tile.blocks_per_sm / tile.cluster());
  const int64_t height = static_cast<int64_t>(tile.rows) * tile.along_m;
  const int64_t width = static_cast<int64_t>(tile.columns) * tile.along_n;
  int64_t band = 1;
  while (band * band * height < at_once * width) ++band;
  const int bands = ceil_divide(m_units, band);
  return {m_units, count_n_units(tile, sizes.n), ceil_divide(m_units, bands)};
}

}  // namespace gemm::cuda
