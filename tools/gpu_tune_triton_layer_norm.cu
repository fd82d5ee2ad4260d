// The compiled norms with the form given by the caller, for float16. Compiled and timed by
// gpu_tune_triton_layer_norm.py.
#include "cuda/norm_backward.cu"
#include "cuda/norm_forward.cuh"

using namespace layer_norm::cuda;

extern "C" int tuned_forward(
    const void* x, const void* weight, void* y, int64_t rows, int hidden, int threads, int rows_each,
    int packs, int pdl, int is_crowded, int is_whole, void* stream) {
  const ForwardCall call = {x, nullptr, weight, nullptr, y, nullptr, rows, hidden, hidden, 0, 1e-5f,
                            true, Element::kHalf, false, false, false};
  return run_forward<__half, __half, true, false>(
      call, {threads, rows_each, packs, pdl != 0, is_crowded != 0, is_whole != 0},
      static_cast<cudaStream_t>(stream));
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
