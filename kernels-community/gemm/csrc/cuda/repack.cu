// A block turns tiles of 128 x 128 bytes: reads along the rows' direction, writes along K. It asks for
// its next tile before it writes the one that it has, so both directions are busy.
#include "repack.h"

#include <torch/csrc/stable/macros.h>

#include "ptx.h"

namespace gemm::cuda {
namespace {

constexpr int kSide = 128;
constexpr int kThreads = 256;
constexpr int kBytesAtOnce = 16;
constexpr int kReads = kSide * kSide / kBytesAtOnce / kThreads;  // of a thread, for one tile
constexpr int kBlocksPerProcessor = 5;

struct Jobs {
  Repack job[2];
  int tiles_of_first;
  int tiles;
};

// word[i] holds byte i of a row for four neighbours; afterwards word[i] holds the four of byte i.
__device__ __forceinline__ void turn_four_by_four(uint32_t (&word)[4]) {
  const uint32_t low_01 = __byte_perm(word[0], word[1], 0x5140);
  const uint32_t low_23 = __byte_perm(word[2], word[3], 0x5140);
  const uint32_t high_01 = __byte_perm(word[0], word[1], 0x7362);
  const uint32_t high_23 = __byte_perm(word[2], word[3], 0x7362);
  word[0] = __byte_perm(low_01, low_23, 0x5410);
  word[1] = __byte_perm(low_01, low_23, 0x7632);
  word[2] = __byte_perm(high_01, high_23, 0x5410);
  word[3] = __byte_perm(high_01, high_23, 0x7632);
}

// A tile of one of the matrices.
struct Place {
  const Repack& job;
  int64_t k;
  int64_t row;
};

__device__ __forceinline__ Place find_tile(const Jobs& jobs, int tile) {
  const bool second = tile >= jobs.tiles_of_first;
  const Repack& job = jobs.job[second ? 1 : 0];
  const int index = second ? tile - jobs.tiles_of_first : tile;
  const int k_tiles = static_cast<int>(job.k_size / kSide);
  return {job, int64_t{index % k_tiles} * kSide, int64_t{index / k_tiles} * kSide};
}

// What a thread reads: the bytes of 16 neighbouring rows, at each of four k.
__device__ __forceinline__ void read_whole(
    uint4 (&read)[kReads], const Repack& job, int64_t k, int64_t row) {
  const uint8_t* from = job.from + k * job.k_stride + row;
  if (row >= job.rows) return;
#pragma unroll
  for (int i = 0; i < kReads; ++i) {
    read[i] = __ldg(reinterpret_cast<const uint4*>(from));
    from += job.k_stride;
  }
}

__device__ __forceinline__ void read_bytes(
    uint4 (&read)[kReads], const Repack& job, int64_t k, int64_t row) {
#pragma unroll 1
  for (int i = 0; i < kReads; ++i) {
    uint32_t words[4] = {};
#pragma unroll
    for (int byte = 0; byte < kBytesAtOnce; ++byte) {
      if (row + byte < job.rows) {
        const uint32_t value =
            job.from[(k + i) * job.k_stride + (row + byte) * job.row_stride];
        words[byte / 4] |= value << (byte % 4 * 8);
      }
    }
    const uint4 whole = {words[0], words[1], words[2], words[3]};
    // A register has no index at run time.
    if (i == 0) read[0] = whole;
    if (i == 1) read[1] = whole;
    if (i == 2) read[2] = whole;
    if (i == 3) read[3] = whole;
  }
}

// `whole`: every 16 bytes of neighbouring rows can be read at once.
template <bool whole>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    repack_kernel(const __grid_constant__ Jobs jobs) {
  // Rows of 32 words. Each group of 16 rows is rotated by 4 words more, which spreads both the
  // writes of a warp (8 groups of rows, 4 words) and its reads (4 words at a time) over the banks.
  // Two tiles take turns, so that one barrier a tile is enough.
  __shared__ uint32_t turned[2][kSide][kSide / 4];
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const int eight = static_cast<int>(threadIdx.x) % 8;
  const int word = static_cast<int>(threadIdx.x) / 8;  // of four k
  uint4 read[kReads];
  const auto read_tile = [&](int tile) {
    const Place place = find_tile(jobs, tile);
    const int64_t k = place.k + word * kReads;
    const int64_t row = place.row + eight * kBytesAtOnce;
    whole ? read_whole(read, place.job, k, row) : read_bytes(read, place.job, k, row);
  };
  int tile = static_cast<int>(blockIdx.x);
  read_tile(tile);
  for (int side = 0; tile < jobs.tiles; side ^= 1) {
    const uint32_t* parts[kReads] = {&read[0].x, &read[1].x, &read[2].x, &read[3].x};
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      uint32_t four[4] = {parts[0][part], parts[1][part], parts[2][part], parts[3][part]};
      turn_four_by_four(four);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        turned[side][eight * 16 + part * 4 + i][(word + 4 * eight) % 32] = four[i];
      }
    }
    const int next = tile + static_cast<int>(gridDim.x);
    if (next < jobs.tiles) read_tile(next);
    __syncthreads();
    const Place place = find_tile(jobs, tile);
    const int64_t row0 = place.row + word;
    uint8_t* to = place.job.to + row0 * place.job.k_size + place.k + eight * kBytesAtOnce;
#pragma unroll
    for (int i = 0; i < kSide / 32; ++i) {
      const int row = word + i * 32;
      const uint4 line =
          *reinterpret_cast<const uint4*>(&turned[side][row][(eight + row / 16) % 8 * 4]);
      if (row0 + i * 32 < place.job.rows) *reinterpret_cast<uint4*>(to) = line;
      to += 32 * place.job.k_size;
    }
    tile = next;
  }
}

bool is_whole(const Repack& job) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(job.from));
  return job.row_stride == 1 && (address | job.k_stride | job.rows) % kBytesAtOnce == 0;
}

int count_tiles(const Repack& job) {
  return static_cast<int>((job.rows + kSide - 1) / kSide * (job.k_size / kSide));
}

}  // namespace

void repack(const Repack (&jobs)[2], int count, cudaStream_t stream) {
  Jobs all{{jobs[0], jobs[1]}, count_tiles(jobs[0]), 0};
  all.tiles = all.tiles_of_first + (count > 1 ? count_tiles(jobs[1]) : 0);
  const bool whole = is_whole(jobs[0]) && (count == 1 || is_whole(jobs[1]));
  const auto kernel = whole ? &repack_kernel<true> : &repack_kernel<false>;
  kernel<<<static_cast<unsigned>(all.tiles), kThreads, 0, stream>>>(all);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace gemm::cuda
