// The forward calls: which form, and which kernel.
#include "norm_forward.cuh"

namespace layer_norm::cuda {
namespace {

// Elements from which many rows are on their way at once; and from which they do not fit into the L2, and a
// launch ahead gains nothing.
constexpr int64_t kMany = int64_t{1} << 24;
constexpr int64_t kLong = int64_t{1} << 25;

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
}

// Whether every row of the call is a sequence of whole packs.
bool has_packs(const ForwardCall& call, int element_bytes) {
  const int pack = kPackBytes / element_bytes;
  const bool is_even = call.hidden % pack == 0 &&
                       (call.rows <= 1 || (call.x_stride % pack == 0 &&
                                           (!call.residual || call.residual_stride % pack == 0)));
  return is_even && is_aligned(call.x) && is_aligned(call.residual) && is_aligned(call.weight) &&
         is_aligned(call.bias) && is_aligned(call.y) && is_aligned(call.sum);
}

// Whether there are kernels for rows of just this length, of which each thread has two packs.
bool is_common(const ForwardCall& call, int packs) {
  const bool is_dense = call.rows <= 1 || call.x_stride == call.hidden;
  const bool is_plain = !call.residual && call.weight && !(call.is_rms && call.bias);
  return is_dense && is_plain && call.element != Element::kFloat && !call.has_wide_parameters &&
         (packs == 256 || packs == 512 || packs == 1024);
}

int power_of_two_from(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

int multiple_from(int n, int of) { return (n + of - 1) / of * of; }

}  // namespace

Form choose_forward_form(const ForwardCall& call, const Device& device) {
  const int bytes = call.element == Element::kFloat ? 4 : 2;
  const int64_t count = call.rows * call.hidden;
  const bool pdl = device.has_pdl && count < kLong;
  const int packs = (call.hidden * bytes + kPackBytes - 1) / kPackBytes;
  if (!has_packs(call, bytes) || packs > 4 * kPackThreads) {
    const int threads = multiple_from(call.hidden / 4 + 1, kWarp);
    return {threads < kMaxThreads ? threads : kMaxThreads, 1, 0, pdl, false};
  }
  if (is_common(call, packs)) {
    return {packs / 2, 1, 2, pdl, false, true, packs > 256 && count >= kLong};
  }
  if (packs <= kWarp) {
    const int threads = power_of_two_from(packs);
    return {threads, 128 / threads, 1, pdl, false};
  }
  const int each = packs <= 128 ? 1 : packs <= 768 ? 2 : 4;
  return {multiple_from((packs + each - 1) / each, kWarp), 1, each, pdl, count >= kMany};
}

cudaError_t launch_forward(const ForwardCall& call, const Form& form, cudaStream_t stream) {
  if (call.rows == 0 || call.hidden == 0) return cudaSuccess;
  return with_types(call.element, call.has_wide_parameters, [&]<class T, class W>() {
    if (call.residual) {
      return call.is_rms ? run_forward<T, W, true, true>(call, form, stream)
                         : run_forward<T, W, false, true>(call, form, stream);
    }
    return call.is_rms ? run_forward<T, W, true, false>(call, form, stream)
                       : run_forward<T, W, false, false>(call, form, stream);
  });
}

}  // namespace layer_norm::cuda
