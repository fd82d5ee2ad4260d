// The order in which the places of a product are computed.
#pragma once

namespace gemm::cuda {

// Places along M and N. Bands of `band` places along M are walked one N after the other, so that
// what runs at the same time reads about as many rows of A as of B and finds them in the L2 cache.
struct Raster {
  int m_units;
  int n_units;
  int band;
};

struct Unit {
  int m;
  int n;
};

constexpr Unit find_unit(const Raster& raster, int index) {
  const int per_band = raster.band * raster.n_units;
  const int first = index / per_band * raster.band;
  const int left = raster.m_units - first;
  const int height = left < raster.band ? left : raster.band;
  const int within = index % per_band;
  return {first + within % height, within / height};
}

// Where a tile of so many rows begins at the latest: the last one ends with the matrix and overlaps
// the one before it, since the copy engine is slow where a load is mostly outside of a matrix.
constexpr int find_last_row(int m, int tile_rows) { return m > tile_rows ? m - tile_rows : 0; }

// The same cut into strips instead, one place wide and `band` places high.
constexpr int count_strips(const Raster& raster) {
  return (raster.m_units + raster.band - 1) / raster.band * raster.n_units;
}

}  // namespace gemm::cuda
