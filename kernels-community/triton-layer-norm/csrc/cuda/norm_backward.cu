// The backward calls: a block takes every n-th row and keeps its share of the sums over the rows in
// registers; a second kernel adds the shares in a fixed order.
//
// With x^ the normalised row, s its scale and g = dy * weight:
// dh = s (g - x^ mean(g x^) - mean(g)) + dsum, without the last mean for RMSNorm; dweight = sum dy x^
// and dbias = sum dy over the rows.
#include "elements.cuh"
#include "norm_calls.h"
#include "row_sum.cuh"

namespace layer_norm::cuda {
namespace {

struct BackwardArguments {
  const void* h;
  const void* weight;
  const void* dy;
  const void* dsum;
  void* dh;
  float* dweight_shares;  // null: not wanted
  float* dbias_shares;    // null: not wanted
  float* row_factors;
  int64_t rows;
  int64_t h_stride;
  int64_t dy_stride;
  int64_t dsum_stride;
  int hidden;
  float eps;
  float share;  // 1 / hidden
};

// What a row's sums say: dh = scale * (g - g_mean) - (h - mean) * slope, and x^ = (h - mean) * scale.
struct RowFactors {
  float mean;
  float scale;
  float slope;
  float g_mean;
};

__device__ inline RowFactors find_factors(
    float mean, float g_mean, float squares, float products, const BackwardArguments& a) {
  const float scale = rsqrtf(fmaf(squares, a.share, a.eps));
  return {mean, scale, scale * scale * scale * (products * a.share), g_mean};
}

template <class T, int packs>
struct RowPacks {
  Pack<T, kPack<T>> h[packs];
  Pack<T, kPack<T>> dy[packs];
  T sample;  // an element of the row; each of the lanes that find its shift has another

  // A value that is near to the row's mean, the same for all of its threads: the mean of the first `lanes`
  // elements. With it taken off, one reading gives the mean and the variance: whatever the row, the
  // square of what is left of the mean is at most hidden / lanes times the variance.
  __device__ float find_shift(unsigned lanes) const {
    float sum[1] = {to_float(sample)};
    sum_over_lanes(sum, lanes);
    return sum[0] / static_cast<float>(lanes);
  }

  // Between two readings of the row.
  __device__ void stay_as_read() {
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      stay_packed(h[n]);
      stay_packed(dy[n]);
    }
  }
};

// Stores the sums of a block as its share; in a narrow block its rows (blockDim.y) add theirs up first.
template <bool is_narrow, int count, int packs>
__device__ inline void store_shares(
    float* shares, int hidden, float (&sums)[packs][count], const int (&columns)[packs]) {
  float* place = shares + static_cast<int64_t>(blockIdx.x) * hidden;
  if constexpr (is_narrow) {
    extern __shared__ __align__(16) float of_block[];
    for (unsigned turn = 0; turn + 1 < blockDim.y; ++turn) {
      if (threadIdx.y == turn && columns[0] < hidden) store_floats(of_block + columns[0], sums[0]);
      __syncthreads();
      if (threadIdx.y == turn + 1 && columns[0] < hidden) {
#pragma unroll
        for (int e = 0; e < count; ++e) sums[0][e] += of_block[columns[0] + e];
      }
      __syncthreads();
    }
    if (threadIdx.y + 1 < blockDim.y) return;
  }
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    if (columns[n] < hidden) store_floats(place + columns[n], sums[n]);
  }
}

template <class T, class W, bool is_rms, bool has_bias, int packs, bool is_narrow>
__global__ void __launch_bounds__(kPackThreads, packs == 1 ? 2 : 1)
    norm_backward_kernel(const __grid_constant__ BackwardArguments a) {
  constexpr int kCount = kPack<T>;
  constexpr int kSums = is_rms ? 2 : 4;
  __shared__ SharedSums<kSums> shared[2];  // taken in turns, so that one barrier a row is enough
  if constexpr (!is_narrow) {
    shared[0].clear();
    shared[1].clear();
    __syncthreads();
  }
  const int64_t step = static_cast<int64_t>(gridDim.x) * (is_narrow ? blockDim.y : 1);
  const int64_t turns = (a.rows + step - 1) / step;
  int64_t row =
      is_narrow ? static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y : blockIdx.x;
  int columns[packs];
#pragma unroll
  for (int n = 0; n < packs; ++n) columns[n] = (threadIdx.x + n * blockDim.x) * kCount;
  let_successor_come();
  wait_for_predecessor();

  Pack<W, kCount> weight[packs];
#pragma unroll
  for (int n = 0; n < packs; ++n) {
    if (a.weight && columns[n] < a.hidden) {
      weight[n] = load_pack<kCount>(static_cast<const W*>(a.weight) + columns[n]);
    }
  }
  float dweight[packs][kCount] = {};
  float dbias[packs][kCount] = {};
  const auto read = [&](int64_t at) {
    RowPacks<T, packs> packs_of_row;
    if constexpr (!is_rms) {
      packs_of_row.sample = T(0.0f);
      if (at < a.rows) {
        packs_of_row.sample =
            static_cast<const T*>(a.h)[at * a.h_stride + threadIdx.x % kWarp];
      }
    }
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      packs_of_row.h[n] = packs_of_row.dy[n] = zero_pack<T, kCount>();
      if (at < a.rows && columns[n] < a.hidden) {
        packs_of_row.h[n] =
            load_pack<kCount>(static_cast<const T*>(a.h) + at * a.h_stride + columns[n]);
        packs_of_row.dy[n] =
            load_pack<kCount>(static_cast<const T*>(a.dy) + at * a.dy_stride + columns[n]);
      }
    }
    return packs_of_row;
  };
  RowPacks<T, packs> current = read(row);
  for (int64_t turn = 0; turn < turns; ++turn, row += step) {
    const RowPacks<T, packs> next = read(row + step);  // on its way while this one is summed
    float h[kCount];
    float dy[kCount];
    float g[kCount];
    const auto unpack_row = [&](int n) {
      unpack(current.h[n], h);
      unpack(current.dy[n], dy);
      if (a.weight) {
        unpack(weight[n], g);
#pragma unroll
        for (int e = 0; e < kCount; ++e) g[e] *= dy[e];
      } else {
#pragma unroll
        for (int e = 0; e < kCount; ++e) g[e] = dy[e];
      }
    };
    // Σ (h - shift)², Σ (h - shift) g, Σ (h - shift) and Σ g; RMSNorm needs the first two, unshifted.
    const float shift = is_rms ? 0.0f : current.find_shift(is_narrow ? blockDim.x : kWarp);
    float sums[kSums] = {};
#pragma unroll
    for (int n = 0; n < packs; ++n) {
      if (columns[n] >= a.hidden) continue;  // it has no weight
      unpack_row(n);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const float shifted = is_rms ? h[e] : h[e] - shift;
        sums[0] = fmaf(shifted, shifted, sums[0]);
        sums[1] = fmaf(shifted, g[e], sums[1]);
        if constexpr (!is_rms) {
          sums[2] += shifted;
          sums[3] += g[e];
        }
      }
    }
    if constexpr (is_narrow) {
      sum_over_lanes(sums, blockDim.x);
    } else {
      sum_together(sums, shared[turn & 1]);
    }
    float mean = 0;
    float g_mean = 0;
    if constexpr (!is_rms) {
      const float offset = sums[2] * a.share;
      sums[0] = fmaxf(fmaf(-offset, sums[2], sums[0]), 0.0f);
      sums[1] = fmaf(-offset, sums[3], sums[1]);
      mean = shift + offset;
      g_mean = sums[3] * a.share;
    }
    const RowFactors f = find_factors(mean, g_mean, sums[0], sums[1], a);
    current.stay_as_read();
    if (row < a.rows) {
#pragma unroll
      for (int n = 0; n < packs; ++n) {
        if (columns[n] >= a.hidden) continue;
        unpack_row(n);
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          const float centred = is_rms ? h[e] : h[e] - f.mean;
          const float g_centred = is_rms ? g[e] : g[e] - f.g_mean;
          g[e] = fmaf(-f.slope, centred, f.scale * g_centred);
          dweight[n][e] = fmaf(dy[e], centred * f.scale, dweight[n][e]);
          if constexpr (has_bias) dbias[n][e] += dy[e];
        }
        if (a.dsum) {
          unpack(
              load_pack<kCount>(static_cast<const T*>(a.dsum) + row * a.dsum_stride + columns[n]),
              h);
#pragma unroll
          for (int e = 0; e < kCount; ++e) g[e] += h[e];
        }
        store_floats(static_cast<T*>(a.dh) + row * a.hidden + columns[n], g);
      }
    }
    current = next;
  }
  if (a.dweight_shares) store_shares<is_narrow>(a.dweight_shares, a.hidden, dweight, columns);
  if (has_bias && a.dbias_shares) store_shares<is_narrow>(a.dbias_shares, a.hidden, dbias, columns);
}

// dh of rows of any length at any address, element by element; what the rows' sums say is kept for
// walking_shares_kernel.
template <class T, class W, bool is_rms>
__global__ void __launch_bounds__(kMaxThreads)
    walking_backward_kernel(const __grid_constant__ BackwardArguments a) {
  __shared__ WarpSums<2> shared[2];
  const int64_t row = blockIdx.x;
  const T* h = static_cast<const T*>(a.h) + row * a.h_stride;
  const T* dy = static_cast<const T*>(a.dy) + row * a.dy_stride;
  const auto g = [&](int c) {
    return a.weight ? to_float(dy[c]) * to_float(static_cast<const W*>(a.weight)[c])
                    : to_float(dy[c]);
  };
  let_successor_come();
  wait_for_predecessor();
  float means[2] = {0, 0};
  if constexpr (!is_rms) {
    for (int c = threadIdx.x; c < a.hidden; c += blockDim.x) {
      means[0] += to_float(h[c]);
      means[1] += g(c);
    }
    sum_over_row<false, kMaxWarps>(means, shared[0]);
    means[0] *= a.share;
    means[1] *= a.share;
  }
  float sums[2] = {0, 0};
  for (int c = threadIdx.x; c < a.hidden; c += blockDim.x) {
    const float centred = to_float(h[c]) - means[0];
    sums[0] = fmaf(centred, centred, sums[0]);
    sums[1] = fmaf(centred, g(c), sums[1]);
  }
  sum_over_row<false, kMaxWarps>(sums, shared[1]);
  const RowFactors f = find_factors(means[0], means[1], sums[0], sums[1], a);
  for (int c = threadIdx.x; c < a.hidden; c += blockDim.x) {
    float out = f.scale * (g(c) - f.g_mean) - (to_float(h[c]) - f.mean) * f.slope;
    if (a.dsum) out += to_float(static_cast<const T*>(a.dsum)[row * a.dsum_stride + c]);
    assign(static_cast<T*>(a.dh)[row * a.hidden + c], out);
  }
  if (threadIdx.x == 0 && a.row_factors) {
    a.row_factors[2 * row] = f.mean;
    a.row_factors[2 * row + 1] = f.scale;
  }
}

// The shares of a block in the sums over the rows: a warp for 32 columns, a thread for every n-th row.
constexpr int kRowsAtOnce = 8;

template <class T>
__global__ void __launch_bounds__(kWarp * kRowsAtOnce)
    walking_shares_kernel(const __grid_constant__ BackwardArguments a) {
  __shared__ float shared[2][kRowsAtOnce][kWarp];
  const int column = blockIdx.y * kWarp + threadIdx.x;
  let_successor_come();
  wait_for_predecessor();
  float dweight = 0;
  float dbias = 0;
  if (column < a.hidden) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * kRowsAtOnce;
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsAtOnce + threadIdx.y; row < a.rows;
         row += step) {
      const float dy = to_float(static_cast<const T*>(a.dy)[row * a.dy_stride + column]);
      const float h = to_float(static_cast<const T*>(a.h)[row * a.h_stride + column]);
      dweight = fmaf(dy, (h - a.row_factors[2 * row]) * a.row_factors[2 * row + 1], dweight);
      dbias += dy;
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = dweight;
  shared[1][threadIdx.y][threadIdx.x] = dbias;
  __syncthreads();
  if (threadIdx.y != 0 || column >= a.hidden) return;
  for (int k = 1; k < kRowsAtOnce; ++k) {
    dweight += shared[0][k][threadIdx.x];
    dbias += shared[1][k][threadIdx.x];
  }
  const int64_t place = static_cast<int64_t>(blockIdx.x) * a.hidden + column;
  if (a.dweight_shares) a.dweight_shares[place] = dweight;
  if (a.dbias_shares) a.dbias_shares[place] = dbias;
}

struct ColumnSums {
  const float* shares[2];
  void* sums[2];
  int sharers;
  int hidden;
};

// The sums of 32 columns of the shares of the weight (or, for blockIdx.y = 1, of the bias).
template <class W>
__global__ void __launch_bounds__(kMaxThreads)
    column_sum_kernel(const __grid_constant__ ColumnSums a) {
  __shared__ float shared[kMaxWarps][kWarp + 1];
  const int column = blockIdx.x * kWarp + threadIdx.x;
  const float* shares = a.shares[blockIdx.y];
  let_successor_come();
  wait_for_predecessor();
  float sum = 0;
  if (column < a.hidden) {
    for (int k = threadIdx.y; k < a.sharers; k += kMaxWarps) {
      sum += shares[static_cast<int64_t>(k) * a.hidden + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Now a warp adds what 32 threads have of a column.
  sum = shared[threadIdx.x][threadIdx.y];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  const int own = blockIdx.x * kWarp + threadIdx.y;
  if (threadIdx.x == 0 && own < a.hidden) assign(static_cast<W*>(a.sums[blockIdx.y])[own], sum);
}

template <class W>
cudaError_t add_shares(const BackwardCall& call, int sharers, bool pdl, cudaStream_t stream) {
  ColumnSums sums = {{}, {}, sharers, call.hidden};
  int count = 0;
  for (int k = 0; k < 2; ++k) {
    void* wanted = k == 0 ? call.dweight : call.dbias;
    if (!wanted) continue;
    sums.shares[count] = call.shares + static_cast<int64_t>(k) * sharers * call.hidden;
    sums.sums[count++] = wanted;
  }
  const dim3 grid((call.hidden + kWarp - 1) / kWarp, count);
  return launch(column_sum_kernel<W>, grid, dim3(kWarp, kMaxWarps), 0, pdl, stream, sums);
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
}

bool has_packs(const BackwardCall& call, int pack) {
  const auto fits = [&](const void* pointer, int64_t stride) {
    return is_aligned(pointer) && (!pointer || call.rows <= 1 || stride % pack == 0);
  };
  return call.hidden % pack == 0 && fits(call.h, call.h_stride) && fits(call.dy, call.dy_stride) &&
         fits(call.dsum, call.dsum_stride) && is_aligned(call.weight) && is_aligned(call.dh);
}

template <class T, class W, bool is_rms>
cudaError_t run_rows(
    const BackwardCall& call, const Form& form, int sharers, cudaStream_t stream) {
  float* dweight_shares = call.dweight ? call.shares : nullptr;
  float* dbias_shares =
      call.dbias ? call.shares + static_cast<int64_t>(sharers) * call.hidden : nullptr;
  const BackwardArguments a = {
      call.h, call.weight, call.dy, call.dsum, call.dh, dweight_shares, dbias_shares,
      call.row_factors, call.rows, call.h_stride, call.dy_stride, call.dsum_stride, call.hidden,
      call.eps, 1.0f / static_cast<float>(call.hidden)};
  if (form.packs > 0) {
    auto* kernel = norm_backward_kernel<T, W, is_rms, true, 1, true>;
    if (form.threads <= kWarp) {
      if (!call.dbias) kernel = norm_backward_kernel<T, W, is_rms, false, 1, true>;
    } else if (form.packs == 1) {
      kernel = call.dbias ? norm_backward_kernel<T, W, is_rms, true, 1, false>
                          : norm_backward_kernel<T, W, is_rms, false, 1, false>;
    } else {
      kernel = call.dbias ? norm_backward_kernel<T, W, is_rms, true, 2, false>
                          : norm_backward_kernel<T, W, is_rms, false, 2, false>;
    }
    const size_t shared = form.rows > 1 ? call.hidden * sizeof(float) : 0;
    return launch(
        kernel, dim3(sharers), dim3(form.threads, form.rows), shared, form.pdl, stream, a);
  }
  if (call.rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  const cudaError_t failure = launch(
      walking_backward_kernel<T, W, is_rms>, dim3(static_cast<unsigned>(call.rows)),
      dim3(form.threads), 0, form.pdl, stream, a);
  if (failure != cudaSuccess || !(call.dweight || call.dbias)) return failure;
  const dim3 grid(sharers, (call.hidden + kWarp - 1) / kWarp);
  return launch(
      walking_shares_kernel<T>, grid, dim3(kWarp, kRowsAtOnce), 0, form.pdl, stream, a);
}

}  // namespace

Form choose_backward_form(const BackwardCall& call, const Device& device) {
  const bool pdl = device.has_pdl;
  const int pack = call.element == Element::kFloat ? 4 : 8;
  const int packs = (call.hidden + pack - 1) / pack;
  if (!has_packs(call, pack) || packs > 2 * kPackThreads) {
    const int threads = (call.hidden / 4 + kWarp) / kWarp * kWarp;
    return {threads < kMaxThreads ? threads : kMaxThreads, 1, 0, pdl, false};
  }
  if (packs <= kWarp) {
    int threads = 1;
    while (threads < packs) threads *= 2;
    return {threads, 256 / threads, 1, pdl, false};
  }
  const int each = packs > kPackThreads ? 2 : 1;
  return {((packs + each - 1) / each + kWarp - 1) / kWarp * kWarp, 1, each, pdl, false};
}

int count_sharers(const BackwardCall& call, const Form& form, const Device& device) {
  if (form.packs == 0) {
    const int64_t groups = (call.rows + kRowsAtOnce - 1) / kRowsAtOnce;
    return static_cast<int>(groups < 64 ? groups : 64);
  }
  const int64_t groups = (call.rows + form.rows - 1) / form.rows;
  const int registers = form.packs == 1 ? 64 : 128;
  const int64_t at_once = device.processors * (65536 / registers / (form.threads * form.rows));
  // Every share is written and read again: few rows are worth one on each multiprocessor alone.
  const int64_t worth = groups / 8 > device.processors ? groups / 8 : device.processors;
  const int64_t most = worth < at_once ? worth : at_once;
  return static_cast<int>(groups < most ? groups : most);
}

cudaError_t launch_backward(
    const BackwardCall& call, const Form& form, int sharers, cudaStream_t stream) {
  if (call.hidden == 0) return cudaSuccess;
  if (call.rows == 0) {
    const int bytes = call.element == Element::kFloat || call.has_wide_parameters ? 4 : 2;
    for (void* sums : {call.dweight, call.dbias}) {
      if (!sums) continue;
      const auto failure = cudaMemsetAsync(sums, 0, size_t(call.hidden) * bytes, stream);
      if (failure != cudaSuccess) return failure;
    }
    return cudaSuccess;
  }
  return with_types(call.element, call.has_wide_parameters, [&]<class T, class W>() {
    const auto failure = call.is_rms ? run_rows<T, W, true>(call, form, sharers, stream)
                                     : run_rows<T, W, false>(call, form, sharers, stream);
    if (failure != cudaSuccess || !(call.dweight || call.dbias)) return failure;
    return add_shares<W>(call, sharers, form.pdl, stream);
  });
}

}  // namespace layer_norm::cuda
