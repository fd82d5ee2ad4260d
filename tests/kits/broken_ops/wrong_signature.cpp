// The schemas and the C++ functions disagree: on how many arguments there are, on what they are, and
// on what comes back. clamp_boxed takes its arguments apart itself, so nothing is known of it.
#include <torch/csrc/stable/library.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "add.h"
#include "registration.h"

using torch::stable::Tensor;

namespace {
void scale(Tensor& out, const Tensor& input, float factor) {}
void shift(Tensor& out, std::optional<int64_t> by, std::vector<int64_t> axes, bool wrap) {}
std::tuple<Tensor, int64_t> split(const Tensor& input, std::string_view mode) { return {input, 1}; }
void clamp_boxed(StableIValue*, uint64_t, uint64_t) {}
}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out) -> ()");
  ops.def("scale(Tensor! out, Tensor input, float factor) -> ()");
  ops.def("shift(Tensor! out, int? by, int[] axes, bool wrap) -> ()");
  ops.def("split(Tensor input, str mode) -> Tensor");
  ops.def("clamp(Tensor! out) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one));
  ops.impl("scale", TORCH_BOX(&scale));
  ops.impl("shift", TORCH_BOX(&shift));
  ops.impl("split", TORCH_BOX(&split));
  ops.impl("clamp", &clamp_boxed);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
