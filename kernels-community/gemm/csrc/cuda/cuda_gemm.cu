// Chooses a tile, describes the matrices to the copy engine, and launches.
#include "cuda_gemm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include <cuda_runtime.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>

#include "../product.h"
#include "repack.h"
#include "sm90_gemm.h"
#include "sm90_turning.h"
#include "tensor_map.h"
#include "tile_table.h"

namespace gemm::cuda {
namespace {

constexpr int kMostDevices = 64;
constexpr int kAlignment = 16;  // of data and rows, for the copy engine

// Kernels have numbers: those of the tiles, and then the one that turns its operands.
constexpr int kTurning = Compiled::kCount;
constexpr int kKernels = Compiled::kCount + 1;
constexpr TileFacts kTurningFacts = facts_of<TurningTile>(Cost{});

template <class... Tiles>
std::array<const void*, kKernels> list_kernels(TileList<Tiles...>) {
  return {
      reinterpret_cast<const void*>(&gemm_kernel<Tiles>)...,
      reinterpret_cast<const void*>(&turning_kernel)};
}

const void* kernel_of(int number) {
  static const auto kernels = list_kernels(Compiled{});
  return kernels[number];
}

const TileFacts& tile_of(int number) {
  return number == kTurning ? kTurningFacts : kTiles[number];
}

int get_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

// The multiprocessors of a device, which must be a Hopper.
int count_processors(int device) {
  static std::atomic<int> known[kMostDevices];
  STD_TORCH_CHECK(device < kMostDevices, "device ", device, " is beyond the ", kMostDevices, "th");
  if (const int count = known[device]) return count;
  const int major = get_attribute(cudaDevAttrComputeCapabilityMajor, device);
  const int minor = get_attribute(cudaDevAttrComputeCapabilityMinor, device);
  STD_TORCH_CHECK(
      major == 9 && minor == 0, "gemm on CUDA needs a GPU of capability 9.0 (H100, H200); device ",
      device, " has ", major, ".", minor);
  return known[device] = get_attribute(cudaDevAttrMultiProcessorCount, device);
}

// A launch of `clusters` clusters of this tile. The attributes point into it, so it stays in place.
struct Launch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[2]{};

  Launch(const TileFacts& tile, int clusters, cudaStream_t stream) {
    config.gridDim = static_cast<unsigned>(clusters * tile.cluster());
    config.blockDim = static_cast<unsigned>(tile.threads);
    config.dynamicSmemBytes = static_cast<size_t>(tile.bytes);
    config.stream = stream;
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(tile.cluster()), 1, 1};
    config.attrs = attributes;
    config.numAttrs = tile.cluster() > 1 ? 2 : 1;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

// How many clusters of a kernel run at once. Asking also readies the kernel on the device.
int count_resident(int number, int device, int processors) {
  static std::atomic<int> known[kMostDevices][kKernels];
  std::atomic<int>& count = known[device][number];
  if (const int found = count) return found;
  const TileFacts& tile = tile_of(number);
  STD_CUDA_CHECK(cudaFuncSetAttribute(
      kernel_of(number), cudaFuncAttributeMaxDynamicSharedMemorySize, tile.bytes));
  int resident = processors * tile.blocks_per_sm;
  if (tile.cluster() > 1) {
    const Launch launch(tile, 1, nullptr);
    STD_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&resident, kernel_of(number), &launch.config));
  }
  STD_TORCH_CHECK(resident > 0, "the GPU cannot hold tile ", number);
  return count = resident;
}

bool is_aligned(const void* data, int64_t row_stride, int64_t element_size) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  return (address | row_stride * element_size) % kAlignment == 0;
}

// Whether the copy engine can read an operand as it lies.
bool is_native(const View& view, int64_t rows, int64_t k) {
  if (rows == 1) return view.k_stride == 1 && is_aligned(view.data, 0, 1);
  return view.k_stride == 1 && view.row_stride >= k && is_aligned(view.data, view.row_stride, 1);
}

// Whether it can read an operand whose rows lie side by side, K after K.
bool is_turned(const View& view, int64_t rows) {
  return view.row_stride == 1 && rows > 1 && view.k_stride >= rows &&
         is_aligned(view.data, view.k_stride, 1);
}

// Holds copies of operands until the launch is queued; the allocator keeps them for the stream.
struct Repacked {
  std::optional<Tensor> a;
  std::optional<Tensor> b;
};

// Replaces operands that the copy engine cannot read by copies that it can.
Repacked repack_operands(Product& product, const Tensor& like, cudaStream_t stream) {
  Repacked copies;
  Repack jobs[2] = {};
  int count = 0;
  const auto plan = [&](View& view, int64_t rows, std::optional<Tensor>& copy) {
    if (is_native(view, rows, product.k)) return;
    const int64_t sizes[] = {rows, product.k};
    copy = torch::stable::new_empty(like, {sizes, 2});
    auto* to = static_cast<uint8_t*>(copy->mutable_data_ptr());
    jobs[count++] = {
        static_cast<const uint8_t*>(view.data), to, rows, product.k, view.row_stride,
        view.k_stride};
    view = {to, product.k, 1};
  };
  plan(product.a, product.m, copies.a);
  plan(product.b, product.n, copies.b);
  if (count > 0) repack(jobs, count, stream);
  return copies;
}

Matrix operand(const View& view, int64_t rows, int64_t k, int box_rows) {
  return {
      view.data, rows, k, rows == 1 ? k : view.row_stride, box_rows, static_cast<int>(kBlockK),
      CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B};
}

Matrix turned_operand(const View& view, int64_t rows, int64_t k, int box_columns) {
  return {
      view.data, k, rows, view.k_stride, static_cast<int>(kBlockK), box_columns,
      CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B};
}

// The rows of an operand that one load brings. The copy engine is slow outside of a matrix, so a
// tile that is higher than the matrix loads only what there is; the rest of C is never stored.
int fit_box(int load_rows, int tile_rows, int64_t rows) {
  if (load_rows < tile_rows) return load_rows;
  return static_cast<int>(count_loaded_rows(tile_rows, rows));
}

// Where C is written: 16-byte aligned rows of dense columns.
struct Result {
  __nv_bfloat16* data;
  int64_t row_stride;
};

Problem describe_problem(const Product& product, const Result& c, const Raster& raster) {
  Problem problem{};
  problem.a_scale = static_cast<const float*>(product.a_scale.data);
  problem.b_scale = static_cast<const float*>(product.b_scale.data);
  problem.c = c.data;
  problem.a_scale_k_stride = product.a_scale.k_stride;
  problem.a_scale_m_stride = product.a_scale.row_stride;
  problem.b_scale_k_stride = product.b_scale.k_stride;
  problem.b_scale_n_stride = product.b_scale.row_stride;
  problem.c_stride = c.row_stride;
  problem.m = static_cast<int>(product.m);
  problem.n = static_cast<int>(product.n);
  problem.k_blocks = static_cast<int>(product.k_blocks());
  problem.raster = raster;
  return problem;
}

// Where launches go.
struct Queue {
  int device;
  int processors;
  cudaStream_t stream;
};

// Launches a kernel for `units` of work on operands that are described as it loads them.
void launch(
    int number, int units, const Matrix& a, const Matrix& b, const Result& c, Problem& problem,
    const Queue& queue) {
  const TileFacts& tile = tile_of(number);
  CUtensorMap a_map = describe_matrix(a);
  CUtensorMap b_map = describe_matrix(b);
  CUtensorMap c_map = describe_matrix(
      {c.data, problem.m, problem.n, c.row_stride, 16, tile.piece_columns,
       CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
       tile.piece_swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE});
  const int resident = count_resident(number, queue.device, queue.processors);
  const Launch launch(tile, tile.splits > 1 ? units : std::min(units, resident), queue.stream);
  void* arguments[] = {&a_map, &b_map, &c_map, &problem};
  STD_CUDA_CHECK(cudaLaunchKernelExC(&launch.config, kernel_of(number), arguments));
}

void launch_tile(
    const Product& product, const Result& c, int index, bool waits_late, const Queue& queue) {
  const TileFacts& tile = kTiles[index];
  const Sizes sizes = {product.m, product.n, product.k_blocks()};
  Problem problem = describe_problem(product, c, choose_raster(tile, sizes, queue.processors));
  problem.last_row = find_last_row(problem.m, tile.rows);
  problem.waits_late = waits_late;
  const int box_a = fit_box(tile.load_rows_a, tile.rows, product.m);
  const int box_b = fit_box(tile.load_rows_b, tile.columns, product.n);
  problem.stage_bytes =
      (box_a * (tile.rows / tile.load_rows_a) + box_b * (tile.columns / tile.load_rows_b)) *
      kBlockK;
  launch(
      index, problem.raster.m_units * problem.raster.n_units,
      operand(product.a, product.m, product.k, box_a),
      operand(product.b, product.n, product.k, box_b), c, problem, queue);
}

void launch_turning(const Product& product, const Result& c, const Queue& queue) {
  const Raster strips = choose_strips(product.m, product.n, queue.processors);
  Problem problem = describe_problem(product, c, strips);
  launch(
      kTurning, count_strips(strips),
      turned_operand(product.a, product.m, product.k, TurningTile::kRows),
      turned_operand(product.b, product.n, product.k, TurningTile::kColumns), c, problem, queue);
}

// The rows of a product before `split`, or from it on.
Product take_rows(const Product& product, int64_t begin, int64_t end) {
  Product rows = product;
  rows.m = end - begin;
  rows.a.data = static_cast<const uint8_t*>(product.a.data) + begin * product.a.row_stride;
  rows.a_scale.data =
      static_cast<const float*>(product.a_scale.data) + begin * product.a_scale.row_stride;
  return rows;
}

// A plan is worth remembering: a model asks for the same few again and again.
Plan find_plan(const Sizes& sizes, int processors) {
  struct Remembered {
    Sizes sizes;
    int processors;
    Plan plan;
  };
  thread_local std::array<Remembered, 64> memory{};
  const auto key = static_cast<uint64_t>(sizes.m * 31 + sizes.n * 7 + sizes.k_blocks);
  Remembered& slot = memory[(key ^ key >> 7) % memory.size()];
  if (!(slot.sizes == sizes) || slot.processors != processors) {
    slot = {sizes, processors, choose_plan(sizes, processors)};
  }
  return slot.plan;
}

void launch_plan(const Product& product, const Result& c, const Plan& plan, const Queue& queue) {
  launch_tile(take_rows(product, 0, plan.split), c, plan.tile, false, queue);
  if (plan.split == product.m) return;
  const Result rest = {c.data + plan.split * c.row_stride, c.row_stride};
  // It shares nothing with the first launch but the stream, so it starts beside it.
  launch_tile(take_rows(product, plan.split, product.m), rest, plan.tail_tile, true, queue);
}

// Whether the kernel that turns its operands serves a product.
bool is_turning(const Product& product, int processors) {
  return is_turned(product.a, product.m) && is_turned(product.b, product.n) &&
         turns_within({product.m, product.n, product.k_blocks()}, processors);
}

}  // namespace

void multiply_into(
    Tensor& c, const Tensor& a, const Tensor& b, const Tensor& a_scale, const Tensor& b_scale,
    bool nt, int64_t tile) {
  Product product = read_product(c, a, b, a_scale, b_scale, nt);
  STD_TORCH_CHECK(
      a.scalar_type() == ScalarType::Float8_e4m3fn,
      "a and b must be float8_e4m3fn on CUDA; found ",
      torch::headeronly::toString(a.scalar_type()));
  STD_TORCH_CHECK(tile < Compiled::kCount, "there is no tile ", tile);
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) {
    torch::stable::zero_(c);
    return;
  }
  const auto device = a.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* stream_handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream_handle));
  const auto stream = static_cast<cudaStream_t>(stream_handle);

  const bool direct =
      c.stride(1) == 1 && (product.m == 1 || c.stride(0) >= product.n) &&
      is_aligned(c.const_data_ptr(), product.m == 1 ? 0 : c.stride(0), 2);
  const Tensor target = direct ? c : make_result(a, b, nt);
  const Queue queue = {device, count_processors(device), stream};
  const Result result = {
      static_cast<__nv_bfloat16*>(target.mutable_data_ptr()),
      product.m == 1 ? product.n : target.stride(0)};
  if (tile < 0 && is_turning(product, queue.processors)) {
    launch_turning(product, result, queue);
  } else {
    const Repacked copies = repack_operands(product, a, stream);
    const Plan plan =
        tile >= 0 ? Plan{static_cast<int>(tile), product.m, 0, 0.0}
                  : find_plan({product.m, product.n, product.k_blocks()}, queue.processors);
    launch_plan(product, result, plan, queue);
  }
  if (!direct) torch::stable::copy_(c, target);
}

}  // namespace gemm::cuda
