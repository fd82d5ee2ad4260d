// The compiled norms with the form given by the caller, for float16. Compiled and timed by
// gpu_tune_triton_layer_norm.py.
#include <iterator>

#include "cuda/norm_backward.cu"
#include "cuda/norm_forward.cuh"

using namespace layer_norm::cuda;

namespace {

// A kernel for rows of a common length, for RMSNorm and for LayerNorm.
struct Whole {
  int threads;
  int packs;
  int blocks;
  bool keeps;
  void (*kernels[2])(WholeArguments);
};

template <int threads, int packs, int blocks, bool keeps>
constexpr Whole describe() {
  return {threads, packs, blocks, keeps,
          {whole_forward_kernel<__half, true, threads, packs, blocks, keeps>,
           whole_forward_kernel<__half, false, threads, packs, blocks, keeps>}};
}

#define BOTH(threads, packs, blocks) \
  describe<threads, packs, blocks, false>(), describe<threads, packs, blocks, true>()

constexpr Whole kWholes[] = {
    BOTH(128, 2, 12), BOTH(128, 2, 16), BOTH(256, 1, 6), BOTH(256, 2, 4), BOTH(256, 2, 5),
    BOTH(256, 2, 6),  BOTH(256, 2, 8),  BOTH(512, 1, 3), BOTH(512, 1, 4), BOTH(512, 2, 3),
    BOTH(512, 2, 4),
};

}  // namespace

// Fills in the numbers of a form for rows of a common length; 0: there are not so many.
extern "C" int describe_whole(int index, int* numbers) {
  if (index >= static_cast<int>(std::size(kWholes))) return 0;
  const Whole& whole = kWholes[index];
  const int found[] = {whole.threads, whole.packs, whole.blocks, whole.keeps};
  for (int i = 0; i < 4; ++i) numbers[i] = found[i];
  return 1;
}

extern "C" int tuned_whole(
    int index, int is_rms, const void* x, const void* weight, const void* bias, void* y, int rows,
    int pdl, void* stream) {
  const Whole& whole = kWholes[index];
  return launch(
      whole.kernels[is_rms ? 0 : 1], dim3(rows), dim3(whole.threads), 0, pdl != 0,
      static_cast<cudaStream_t>(stream), WholeArguments{x, weight, bias, y, 1e-5f});
}

extern "C" int tuned_forward(
    int is_rms, const void* x, const void* weight, const void* bias, void* y, int rows, int hidden,
    int threads, int packs, int pdl, int is_crowded, void* stream) {
  const ForwardCall call = {x, nullptr, weight, bias, y, nullptr, rows, hidden, hidden, 0, 1e-5f,
                            is_rms != 0, Element::kHalf, false, false, false};
  const Form form = {threads, 1, packs, pdl != 0, is_crowded != 0};
  const auto to = static_cast<cudaStream_t>(stream);
  return is_rms ? run_forward<__half, __half, true, false>(call, form, to)
                : run_forward<__half, __half, false, false>(call, form, to);
}

extern "C" int tuned_backward(
    const void* h, const void* weight, const void* dy, void* dh, void* dweight, void* shares,
    int64_t rows, int hidden, int threads, int packs, int sharers, void* stream) {
  const BackwardCall call = {h, weight, dy, nullptr, dh, dweight, nullptr,
                             static_cast<float*>(shares), nullptr, rows, hidden, hidden, hidden, 0,
                             1e-5f, true, Element::kHalf, false};
  return launch_backward(
      call, {threads, 1, packs, true, false}, sharers, static_cast<cudaStream_t>(stream));
}
