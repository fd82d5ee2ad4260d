// Chooses the instruction set once, and spreads each call over torch's threads.
#include "cpu_activation.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "kernel_table.h"

namespace activation::cpu {
namespace {

// ATen's own grain: below it a second thread costs more than it brings.
constexpr int64_t kElementsPerThread = 32768;

struct Candidate {
  const KernelTable* kernels;
  bool supported;
};

// Best first. The builtins ask cpuid, and for AVX also whether the system saves the registers.
std::vector<Candidate> list_candidates() {
  return {
#if defined(__x86_64__)
      {&avx512::kKernels,
       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")},
      {&avx2::kKernels,
       __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c")},
#endif
      {&baseline::kKernels, true},
  };
}

// KERNELS_ACTIVATION_ISA overrides the choice, so that tests reach every path.
const KernelTable& choose_kernels() {
  const char* wish = std::getenv("KERNELS_ACTIVATION_ISA");
  const bool chosen_by_name = wish != nullptr && *wish != '\0';
  std::string found;
  for (const Candidate& candidate : list_candidates()) {
    if (!candidate.supported) continue;
    if (!chosen_by_name || std::string_view(wish) == candidate.kernels->isa) {
      return *candidate.kernels;
    }
    found += found.empty() ? "" : ", ";
    found += candidate.kernels->isa;
  }
  STD_TORCH_CHECK(
      false, "KERNELS_ACTIVATION_ISA is '", wish, "'; this processor has: ", found,
      ". Unset it to let the kernel choose.");
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose_kernels();
  return chosen;
}

int64_t size_of(Element element) { return element == Element::kFloat ? 4 : 2; }

// Calls span(out, in, count) for dense pieces that together are the whole plan. The elements are
// dealt out, not the rows, so one long row and many short ones both use every thread.
template <class Span>
void for_each_span(const LaunchPlan& plan, const Span& span) {
  if (plan.rows == 0 || plan.cols == 0) return;
  const int64_t element_size = size_of(plan.element);
  char* out = static_cast<char*>(plan.out);
  const char* in = static_cast<const char*>(plan.input);
  torch::stable::parallel_for(
      0, plan.rows * plan.cols, kElementsPerThread, [&](int64_t begin, int64_t end) {
        int64_t row = begin / plan.cols;
        int64_t col = begin % plan.cols;
        while (begin < end) {
          const int64_t count = std::min(plan.cols - col, end - begin);
          span(
              out + (row * plan.out_stride + col) * element_size,
              in + (row * plan.in_stride + col) * element_size, count);
          begin += count;
          ++row;
          col = 0;
        }
      });
}

}  // namespace

void run_unary(Activation kind, const LaunchPlan& plan) {
  const UnarySpan f = kernels().unary[static_cast<int>(kind)][static_cast<int>(plan.element)];
  for_each_span(plan, [f](void* to, const void* x, int64_t count) { f(to, x, count, 0.0f); });
}

void run_gated(Activation kind, Gate gate, const LaunchPlan& plan, double threshold) {
  const GatedSpan f = kernels().gated[static_cast<int>(kind)][static_cast<int>(plan.element)];
  const int64_t half = plan.cols * size_of(plan.element);
  const int64_t gate_at = gate == Gate::kFirstHalf ? 0 : half;
  const float limit = static_cast<float>(threshold);
  for_each_span(plan, [=](void* to, const char* row, int64_t count) {
    f(to, row + gate_at, row + (half - gate_at), count, limit);
  });
}

std::string isa() { return kernels().isa; }

}  // namespace activation::cpu
