// Runs a function of one element over rows in memory: a few tensors in, a few out, each element
// read and written once.
//
// A thread computes packs of neighbouring elements, 16 bytes where the layout allows it. Blocks are
// small and end soon, so that reads and writes of many of them mix: larger blocks and longer
// threads, with any hint to the caches, were slower on an H200 (docs/kernels/activation.md), but
// where a call is so small that it is over once all blocks have begun.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "device_math.cuh"
#include "launch.h"

namespace activation::cuda {

constexpr int kThreads = 128;
constexpr int kMostThreads = 512;
constexpr int kPackBytes = 16;

template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T values[count];
};

// Element `e` as a float. Two bfloat16 of one word come out of it by a shift and a mask.
template <class T, int count>
__device__ inline float read(const Pack<T, count>& pack, int e) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && count % 2 == 0) {
    uint32_t two;
    memcpy(&two, &pack.values[e / 2 * 2], sizeof two);
    return __uint_as_float(e % 2 == 0 ? two << 16 : two & 0xffff0000u);
  } else {
    return to_float(pack.values[e]);
  }
}

// n / divisor for n < 2^31 by a multiplication; Granlund and Montgomery, "Division by invariant
// integers using multiplication", 1994.
struct Divider {
  uint32_t divisor;
  uint32_t magic;
  uint32_t shift;

  explicit Divider(uint32_t by) : divisor(by), shift(0) {
    while ((uint64_t{1} << shift) < by) ++shift;
    const uint64_t excess = (uint64_t{1} << shift) - by;
    magic = static_cast<uint32_t>((excess << 32) / by + 1);
  }

  __device__ uint32_t divide(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
};

// The tensors of a call: where each begins, and the elements from row to row.
template <class T, int inputs, int outputs>
struct Streams {
  const T* in[inputs];
  T* out[outputs];
  int64_t in_stride[inputs];
  int64_t out_stride[outputs];
  float threshold;
};

// What one launch covers.
struct Range {
  uint32_t packs;
  Divider packs_in_row;
};

template <class Body, class T>
using StreamsOf = Streams<T, Body::kInputs, Body::kOutputs>;

template <class Body, class T, int pack>
struct Loaded {
  Pack<T, pack> in[Body::kInputs];
  int64_t row;
  int64_t col;
};

template <class Body, class T, int pack>
__device__ inline Loaded<Body, T, pack> load(
    const StreamsOf<Body, T>& streams, int64_t row, int64_t col) {
  Loaded<Body, T, pack> loaded{{}, row, col};
#pragma unroll
  for (int k = 0; k < Body::kInputs; ++k) {
    loaded.in[k] = *reinterpret_cast<const Pack<T, pack>*>(
        streams.in[k] + row * streams.in_stride[k] + col);
  }
  return loaded;
}

template <class Body, class T, int pack>
__device__ inline void compute(
    const StreamsOf<Body, T>& streams, const Loaded<Body, T, pack>& loaded) {
  Pack<T, pack> out[Body::kOutputs];
#pragma unroll
  for (int e = 0; e < pack; ++e) {
    float arguments[Body::kInputs];
    float results[Body::kOutputs];
#pragma unroll
    for (int k = 0; k < Body::kInputs; ++k) arguments[k] = read(loaded.in[k], e);
    Body::template apply<T>(arguments, streams.threshold, results);
#pragma unroll
    for (int k = 0; k < Body::kOutputs; ++k) assign(out[k].values[e], results[k]);
  }
#pragma unroll
  for (int k = 0; k < Body::kOutputs; ++k) {
    *reinterpret_cast<Pack<T, pack>*>(
        streams.out[k] + loaded.row * streams.out_stride[k] + loaded.col) = out[k];
  }
}

// Whether a call is one dense row, as most element-wise ones are: then a pack's number says where it
// is. There is device code for that only where `Body` has it so.
enum class Shape { kOneRow, kRows };

// A thread takes `depth` packs, and loads all of them before it computes the first.
template <class Body, class T, int pack, int depth, Shape shape>
__global__ void __launch_bounds__(kMostThreads)
    stream_kernel(const StreamsOf<Body, T> streams, const Range range) {
  const uint32_t threads = blockDim.x;
  const uint32_t first = blockIdx.x * (threads * depth) + threadIdx.x;
  const auto load_pack = [&](uint32_t i) {
    if constexpr (shape == Shape::kOneRow) {
      return load<Body, T, pack>(streams, 0, static_cast<int64_t>(i) * pack);
    }
    const uint32_t row = range.packs_in_row.divide(i);
    const uint32_t col = i - row * range.packs_in_row.divisor;
    return load<Body, T, pack>(streams, row, static_cast<int64_t>(col) * pack);
  };
  if constexpr (depth == 1) {
    if (first < range.packs) compute<Body>(streams, load_pack(first));
  } else {
    Loaded<Body, T, pack> loaded[depth];
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      if (first + d * threads < range.packs) loaded[d] = load_pack(first + d * threads);
    }
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      if (first + d * threads < range.packs) compute<Body>(streams, loaded[d]);
    }
  }
}

// The threads that an H200 runs at once, about.
constexpr uint32_t kWave = 1 << 18;
// From here to a wave, fewer and larger blocks begin sooner than many small ones.
constexpr uint32_t kLeastPacksForLargeBlocks = 1 << 16;
// From a wave to here a thread takes two packs: one each would need a second wave of blocks, nearly as
// long as the first.
constexpr uint32_t kMostLoadsForTwo = 1 << 20;

template <class Body, class T, int pack, Shape shape>
void launch_range(const StreamsOf<Body, T>& streams, const Range& range, cudaStream_t stream) {
  constexpr int kDepth = pack > 1 && Body::kInputs + Body::kOutputs <= 3 ? 2 : 1;
  const uint32_t packs = range.packs;
  if (kDepth > 1 && packs > kWave && packs * Body::kInputs <= kMostLoadsForTwo) {
    constexpr uint32_t kBlock = kThreads * kDepth;
    stream_kernel<Body, T, pack, kDepth, shape>
        <<<(packs + kBlock - 1) / kBlock, kThreads, 0, stream>>>(streams, range);
  } else {
    const bool large = packs >= kLeastPacksForLargeBlocks && packs <= kWave;
    const uint32_t threads = large ? kMostThreads : kThreads;
    stream_kernel<Body, T, pack, 1, shape>
        <<<(packs + threads - 1) / threads, threads, 0, stream>>>(streams, range);
  }
}

// The same from row `row` and column `col` on.
template <class T, int inputs, int outputs>
Streams<T, inputs, outputs> advance(
    Streams<T, inputs, outputs> streams, int64_t row, int64_t col) {
  for (int k = 0; k < inputs; ++k) streams.in[k] += row * streams.in_stride[k] + col;
  for (int k = 0; k < outputs; ++k) streams.out[k] += row * streams.out_stride[k] + col;
  return streams;
}

// std::min, without the hundred headers behind <algorithm>.
inline int64_t smaller(int64_t a, int64_t b) { return b < a ? b : a; }

// Covers `rows` rows of `cols` elements, whole packs, by launches that count in 31 bits.
template <class Body, class T, int pack>
void launch_packs(
    const StreamsOf<Body, T>& streams, int64_t rows, int64_t cols, cudaStream_t stream) {
  constexpr int64_t kMaxPacks = int64_t{1} << 29;
  const int64_t col_step = smaller(cols, kMaxPacks * pack);
  for (int64_t col = 0; col < cols; col += col_step) {
    const int64_t packs = smaller(col_step, cols - col) / pack;
    const int64_t row_step = kMaxPacks / packs;
    for (int64_t row = 0; row < rows; row += row_step) {
      const int64_t height = smaller(row_step, rows - row);
      const Range range = {
          static_cast<uint32_t>(height * packs), Divider(static_cast<uint32_t>(packs))};
      const StreamsOf<Body, T> part = advance(streams, row, col);
      if (Body::kMostlyOneRow && height == 1) {
        launch_range<Body, T, pack, Body::kMostlyOneRow ? Shape::kOneRow : Shape::kRows>(
            part, range, stream);
      } else {
        launch_range<Body, T, pack, Shape::kRows>(part, range, stream);
      }
    }
  }
}

// Whether packs of `bytes` can be read and written: every row begins at a multiple of that.
template <class T, int inputs, int outputs>
bool is_aligned(
    const Streams<T, inputs, outputs>& streams, int64_t rows, int64_t cols, int64_t bytes) {
  int64_t all = rows > 1 ? cols : 0;  // the end of a single row need not be one
  for (int k = 0; k < inputs; ++k) all |= rows > 1 ? streams.in_stride[k] : 0;
  for (int k = 0; k < outputs; ++k) all |= rows > 1 ? streams.out_stride[k] : 0;
  all *= sizeof(T);
  for (const T* p : streams.in) all |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(p));
  for (T* p : streams.out) all |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(p));
  return all % bytes == 0;
}

// Up to this many elements, a block of them for each processor, a thread each is done soonest.
constexpr int64_t kMostElementsApart = 1 << 14;
// Up to this many a second launch for those behind the last pack costs more than packs save.
constexpr int64_t kMostElementsForOneLaunch = 1 << 20;

// Applies `Body` to every element of `rows` rows of `cols`; returns what the runtime says.
template <class Body, class T>
cudaError_t run_streams(
    const StreamsOf<Body, T>& streams, int64_t rows, int64_t cols, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  constexpr int kPack = kPackBytes / sizeof(T);
  const int64_t elements = rows * cols;
  const bool worth_packing =
      elements > kMostElementsApart &&
      (cols % kPack == 0 || elements > kMostElementsForOneLaunch);
  const int64_t packed = worth_packing && is_aligned(streams, rows, cols, kPackBytes)
                             ? cols / kPack * kPack
                             : 0;
  if (packed > 0) launch_packs<Body, T, kPack>(streams, rows, packed, stream);
  if (packed < cols) {
    launch_packs<Body, T, 1>(advance(streams, 0, packed), rows, cols - packed, stream);
  }
  return cudaGetLastError();
}

}  // namespace activation::cuda
