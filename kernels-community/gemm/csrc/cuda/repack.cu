// A block turns 128 x 128 bytes: reads along the rows' direction, writes along K.
#include "repack.h"

#include <torch/csrc/stable/macros.h>

#include "ptx.h"

namespace gemm::cuda {
namespace {

constexpr int kSide = 128;
constexpr int kThreads = 256;
constexpr int kBytesAtOnce = 16;

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

// 16 bytes of neighbouring rows at one k.
__device__ __forceinline__ uint4 read_rows(const Repack& job, int64_t k, int64_t row) {
  const uint8_t* from = job.from + k * job.k_stride + row * job.row_stride;
  const bool whole = job.row_stride == 1 && row + kBytesAtOnce <= job.rows;
  if (whole && reinterpret_cast<uintptr_t>(from) % kBytesAtOnce == 0) {
    return __ldg(reinterpret_cast<const uint4*>(from));
  }
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < kBytesAtOnce; ++i) {
    if (row + i < job.rows) {
      words[i / 4] |= static_cast<uint32_t>(from[i * job.row_stride]) << (i % 4 * 8);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

__global__ void __launch_bounds__(kThreads) repack_kernel(const __grid_constant__ Jobs jobs) {
  // Rows of 32 words. Each group of 16 rows is rotated by 4 words more, which spreads both the
  // writes of a warp (8 groups of rows, 4 words) and its reads (4 words at a time) over the banks.
  __shared__ uint32_t turned[kSide][kSide / 4];
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const int eight = static_cast<int>(threadIdx.x) % 8;
  const int word = static_cast<int>(threadIdx.x) / 8;  // of four k
  for (int tile = static_cast<int>(blockIdx.x); tile < jobs.tiles;
       tile += static_cast<int>(gridDim.x)) {
    const bool second = tile >= jobs.tiles_of_first;
    const Repack& job = jobs.job[second ? 1 : 0];
    const int index = second ? tile - jobs.tiles_of_first : tile;
    const int k_tiles = static_cast<int>(job.k_size / kSide);
    const int64_t k0 = static_cast<int64_t>(index % k_tiles) * kSide;
    const int64_t row0 = static_cast<int64_t>(index / k_tiles) * kSide;
    uint4 read[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      read[i] = read_rows(job, k0 + word * 4 + i, row0 + eight * kBytesAtOnce);
    }
    const uint32_t* parts[4] = {&read[0].x, &read[1].x, &read[2].x, &read[3].x};
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      uint32_t four[4] = {parts[0][part], parts[1][part], parts[2][part], parts[3][part]};
      turn_four_by_four(four);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        turned[eight * 16 + part * 4 + i][(word + 4 * eight) % 32] = four[i];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = word + i * 32;
      if (row0 + row < job.rows) {
        const uint4 whole =
            *reinterpret_cast<const uint4*>(&turned[row][(eight + row / 16) % 8 * 4]);
        *reinterpret_cast<uint4*>(
            job.to + (row0 + row) * job.k_size + k0 + eight * kBytesAtOnce) = whole;
      }
    }
    __syncthreads();
  }
}

int count_tiles(const Repack& job) {
  return static_cast<int>((job.rows + kSide - 1) / kSide * (job.k_size / kSide));
}

}  // namespace

void repack(const Repack (&jobs)[2], int count, cudaStream_t stream) {
  Jobs all{{jobs[0], jobs[1]}, count_tiles(jobs[0]), 0};
  all.tiles = all.tiles_of_first + (count > 1 ? count_tiles(jobs[1]) : 0);
  repack_kernel<<<static_cast<unsigned>(all.tiles), kThreads, 0, stream>>>(all);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace gemm::cuda
