// The tiles that are compiled, what each costs, and which of them serve a product.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "raster.h"
#include "tile.h"

namespace gemm::cuda {

// What a tile takes, in microseconds: a step of K where few tiles run, where each processor has
// one, and where as many run as fit, or more; the rest of a tile; the rest of a launch. Fitted
// to the times of 321 shapes on an H200 (docs/kernels/gemm.md).
struct Cost {
  double step_alone;
  double step_beside;
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
    Tile<2, 1, 256, Share::kNothing, 1, 1, 1, 4>,
    Tile<2, 1, 192, Share::kNothing, 1, 1, 1, 2>,
    Tile<2, 1, 160, Share::kNothing, 1, 1, 1, 2>,
    Tile<2, 1, 144, Share::kNothing, 1, 1, 1, 2>,
    Tile<2, 1, 96, Share::kB, 2, 1, 1>,
    Tile<2, 1, 128, Share::kNothing, 1, 2, 1>,
    Tile<1, 1, 128, Share::kNothing, 1, 1, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 2, 2>,
    Tile<1, 1, 128, Share::kNothing, 1, 4, 2>,
    Tile<1, 1, 64, Share::kNothing, 1, 1, 2>,
    Tile<1, 1, 64, Share::kNothing, 1, 2, 2>,
    Tile<1, 1, 64, Share::kNothing, 1, 4, 2>,
    Tile<1, 1, 64, Share::kNothing, 1, 1, 3>,
    Tile<1, 1, 64, Share::kNothing, 1, 4, 3>>;

inline constexpr std::array<TileFacts, Compiled::kCount> kTiles = Compiled::with({{
    {0.311, 0.362, 0.385, 0.81, 1.7},
    {0.556, 0.758, 0.760, 1.63, 1.6},
    {0.413, 0.541, 0.564, 1.06, 1.9},
    {0.390, 0.472, 0.495, 0.92, 1.8},
    {0.372, 0.442, 0.467, 0.98, 1.6},
    {0.278, 0.306, 0.326, 0.76, 1.9},
    {0.346, 0.432, 0.440, 3.91, 0.0},
    {0.231, 0.282, 0.508, 0.68, 1.5},
    {0.192, 0.363, 0.537, 1.61, 1.2},
    {0.158, 0.509, 0.754, 0.69, 1.5},
    {0.167, 0.167, 0.250, 0.42, 1.7},
    {0.174, 0.198, 0.373, 0.50, 2.0},
    {0.261, 0.261, 0.385, 0.85, 1.3},
    {0.173, 0.173, 0.435, 0.29, 1.9},
    {0.239, 0.239, 0.608, 0.45, 2.0},
}});

constexpr double kCacheBytesPerMicrosecond = 13.1e6;
constexpr double kTailStart = 3.5;  // microseconds that a second launch costs beside its work

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
  return std::min<int64_t>(tile_rows, m);
}

// How many processors the clusters of a tile reach with a block each: of four, they leave some out.
constexpr int64_t count_reached(const TileFacts& tile, int processors) {
  return tile.cluster() > 2 ? processors * 10 / 11 : processors;
}

// Which of the three steps of Cost a step is, in parts of 1.
struct StepMix {
  double alone;
  double beside;
  double full;
};

constexpr StepMix mix_steps(int64_t blocks, int64_t reached, int64_t blocks_per_sm) {
  if (blocks > reached * blocks_per_sm) return {0.0, 0.0, 1.0};
  if (blocks <= reached) {
    const double used = static_cast<double>(blocks) / static_cast<double>(reached);
    return {1.0 - used, used, 0.0};
  }
  const double full = static_cast<double>(ceil_divide(blocks, reached) - 1) /
                      static_cast<double>(blocks_per_sm - 1);
  return {0.0, 1.0 - full, full};
}

constexpr double estimate(const TileFacts& tile, const Sizes& sizes, int processors) {
  const Cost& cost = tile.cost;
  const int64_t blocks = static_cast<int64_t>(count_m_units(tile, sizes.m)) *
                         count_n_units(tile, sizes.n) * tile.cluster();
  const int64_t reached = count_reached(tile, processors);
  const int64_t rounds = ceil_divide(blocks, reached * tile.blocks_per_sm);
  const int64_t steps = ceil_divide(sizes.k_blocks, tile.splits);
  const auto loaded = static_cast<double>(count_loaded_rows(tile.rows, sizes.m));
  const StepMix mix = mix_steps(blocks, reached, tile.blocks_per_sm);
  const double step = cost.step_alone * mix.alone +
                      (cost.step_beside * mix.beside + cost.step * mix.full) *
                          (loaded + tile.columns) / (tile.rows + tile.columns);
  // The parts of K are summed through the network of the cluster, which blocks have in common.
  const int64_t together = std::min<int64_t>(tile.blocks_per_sm, ceil_divide(blocks, reached));
  const double end = cost.end * (tile.splits > 1 ? static_cast<double>(together) : 1.0);
  const double computing = static_cast<double>(rounds * steps) * step;
  const double fetched = loaded / tile.along_n + static_cast<double>(tile.columns) / tile.along_m;
  const double bytes = static_cast<double>(blocks * steps * kBlockK) * fetched;
  return std::max(computing, bytes / kCacheBytesPerMicrosecond) +
         static_cast<double>(rounds) * end + cost.launch;
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

// The strips of the kernel that turns its operands: 128 columns wide, and so high that the last
// round of processors is well filled. Beginning one costs about a third of a tile of 128 rows.
constexpr Raster choose_strips(int64_t m, int64_t n, int processors) {
  constexpr int kMostUnits = 64;
  constexpr double kBeginning = 0.3;
  Raster best{ceil_divide(m, 128), ceil_divide(n, 128), 1};
  double least = 0.0;
  for (int band = 1; band <= std::min(best.m_units, kMostUnits); ++band) {
    const int rounds = ceil_divide(count_strips({best.m_units, best.n_units, band}), processors);
    const double cost = rounds * (band + kBeginning);
    if (band == 1 || cost < least) {
      least = cost;
      best.band = band;
    }
  }
  return best;
}

// Whether turning within the product is faster than a copy before it. Where K is one block it hides
// behind the writing of C, else every step takes longer, which adds up in products of many tiles.
constexpr bool turns_within(const Sizes& sizes, int processors) {
  constexpr int64_t kMostSteps = 16;
  if (sizes.k_blocks > kMostTurnedBlocks) return false;
  const Raster strips = choose_strips(sizes.m, sizes.n, processors);
  const int rounds = ceil_divide(count_strips(strips), processors);
  return sizes.k_blocks == 1 || rounds * strips.band * sizes.k_blocks <= kMostSteps;
}

}  // namespace gemm::cuda
