// The norms' node of autograd. torch's stable interface has no nodes, so this is compiled for each torch by itself.
//
// It implements the key Autograd of two ops that the main library declares, and nothing else. Without it Python
// records the same calls, with the same gradients to the bit (_compiled.py).
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include "autograd_node.h"
#include "registration.h"

namespace {

using at::Tensor;
using kernel_builder::holds_more;
using kernel_builder::make_node;
using kernel_builder::tell_hooks;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Maybe = std::optional<Tensor>;
using Pair = std::tuple<Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Maybe, Maybe>;  // of h, the weight and the bias

using NormSchema = Tensor(const Tensor&, const Maybe&, const Maybe&, double, bool);
using AddNormSchema =
    Pair(const Tensor&, const Tensor&, const Maybe&, const Maybe&, double, bool, bool);
using NormBackwardSchema = Gradients(
    const Tensor&, const Maybe&, const Tensor&, const Maybe&, double, bool, bool, bool);

Maybe to_optional(const Tensor& tensor) { return tensor.defined() ? Maybe(tensor) : std::nullopt; }

Tensor widen(const Tensor& x) { return x.to(c10::promoteTypes(x.scalar_type(), at::kFloat)); }

Tensor sum_rows(const Tensor& x) {
  std::vector<int64_t> rows(x.dim());  // all but the last, once there is one more in front
  std::iota(rows.begin(), rows.end(), 0);
  return x.unsqueeze(0).sum(rows);
}

// The backward in torch's own ops, so that it can be recorded in its turn; reference.py has the formulas.
Gradients differentiate_in_steps(
    const Tensor& h, const Maybe& weight, const Tensor& dy, const Maybe& dsum, double eps,
    bool is_rms, bool wants_dweight, bool wants_dbias) {
  Tensor centered = widen(h);
  if (!is_rms) centered = centered - centered.mean(-1, true);
  const Tensor scale = (centered.square().mean(-1, true) + eps).rsqrt();
  const Tensor normal = centered * scale;
  const Tensor wide_dy = widen(dy);
  const Tensor g = weight ? wide_dy * widen(*weight) : wide_dy;
  Tensor dh = g - normal * (g * normal).mean(-1, true);
  if (!is_rms) dh = dh - g.mean(-1, true);
  dh = dh * scale;
  if (dsum) dh = dh + widen(*dsum);
  return {
      dh.to(h.scalar_type()), wants_dweight ? Maybe(sum_rows(wide_dy * normal)) : std::nullopt,
      wants_dbias ? Maybe(sum_rows(wide_dy)) : std::nullopt};
}

// What a call keeps for its backward, beside tensors.
struct Options {
  double eps = 0;
  bool is_rms = false;
  bool adds = false;  // whether h is the sum of x and the residual, and a result
};

// A sum in float32 wants everything beside it in float32.
Gradients differentiate_at_once(
    const Tensor& h, const Maybe& weight, const Tensor& dy, const Maybe& dsum, double eps,
    bool is_rms, bool wants_dweight, bool wants_dbias) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(KERNEL_OP("cuda_norm_backward"), "")
                             .typed<NormBackwardSchema>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto wide = h.scalar_type();
  const bool widens = weight && wide == at::kFloat && weight->scalar_type() != wide;
  return op.call(
      h, widens ? Maybe(weight->to(wide)) : weight, dy.scalar_type() == wide ? dy : dy.to(wide),
      dsum, eps, is_rms, wants_dweight, wants_dbias);
}

// The gradients of x, weight, bias and, if there is one, residual; the engine gives them the dtypes that these want.
variable_list differentiate(
    const variable_list& dys, const Tensor& h, const Tensor& weight, const Options& options,
    bool wants_dweight, bool wants_dbias) {
  const Tensor& dy = dys[0];
  const Tensor dsum = options.adds ? dys[1] : Tensor();
  Gradients found(dsum, std::nullopt, std::nullopt);
  if (dy.defined()) {
    const bool in_steps = c10::GradMode::is_enabled() || holds_more(dy) || holds_more(dsum);
    const auto way = in_steps ? &differentiate_in_steps : &differentiate_at_once;
    found = way(
        h, to_optional(weight), dy, to_optional(dsum), options.eps, options.is_rms, wants_dweight,
        wants_dbias);
  }
  auto& [dh, dweight, dbias] = found;
  variable_list gradients = {dh, dweight.value_or(Tensor()), dbias.value_or(Tensor())};
  if (options.adds) gradients.push_back(dh);
  return gradients;
}

// Saves h, that is x or its sum with the residual, which the backward normalises again.
struct NormNode final : torch::autograd::Node {
  enum Edge : size_t { kX, kWeight, kBias, kResidual };  // the order of its gradients

  SavedVariable h;
  SavedVariable weight;
  Options options;

  variable_list apply(variable_list&& dys) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return differentiate(
        dys, h.unpack(getptr()), weight.unpack(), options, task_should_compute_output(kWeight),
        task_should_compute_output(kBias));
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    h.reset_data();
    weight.reset_data();
  }

  std::string name() const override { return options.adds ? "AddNormBackward" : "NormBackward"; }

  // The rest is for a backward that is compiled: it looks at what a node keeps, and is given a function of that.
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override {
    args.collect(h, options.adds);
    args.collect(weight, false);
    args.collect(options.eps);
    args.collect(options.is_rms);
    args.collect(options.adds);
  }

  static variable_list apply_to_kept(
      const variable_list& dys, const std::vector<at::IValue>& kept) {
    const Options options = {kept[2].toDouble(), kept[3].toBool(), kept[4].toBool()};
    return differentiate(
        dys, kept[0].toTensor(), kept[1].toTensor(), options, kept[5].toBool(), kept[6].toBool());
  }

  variable_list apply_with_saved(
      const variable_list& dys, torch::autograd::SwapSavedVariables& saved) override {
    saved.before(h);
    saved.before(weight);
    variable_list gradients = kernel_builder::call_compiled(
        *this, saved, dys, &apply_to_kept,
        {h.unpack(getptr()), weight.unpack(), options.eps, options.is_rms, options.adds,
         task_should_compute_output(kWeight), task_should_compute_output(kBias)});
    saved.after(h);
    saved.after(weight);
    return gradients;
  }
};

template <class... Tensors>
void refuse_tangents(const Tensors&... inputs) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(torch::autograd::isFwGradDefined(inputs) || ...), "norm: it has no forward-mode derivative");
}

template <class... Tensors>
auto make_node_for(const Options& options, const Tensors&... inputs) {
  auto node = make_node<NormNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  node->options = options;
  return node;
}

Tensor norm(
    c10::DispatchKeySet keys, const Tensor& x, const Maybe& weight, const Maybe& bias, double eps,
    bool is_rms) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(KERNEL_OP("cuda_recorded_norm"), "")
                             .typed<NormSchema>();
  const auto call = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.redispatch(keys & c10::after_ADInplaceOrView_keyset, x, weight, bias, eps, is_rms);
  };
  refuse_tangents(x, weight, bias);
  if (!torch::autograd::compute_requires_grad(x, weight, bias)) return call();
  const auto node = make_node_for({eps, is_rms, false}, x, weight, bias);
  node->h = SavedVariable(x, false);
  node->weight = SavedVariable(weight, false);
  const Tensor y = call();
  torch::autograd::set_history(y, node);
  tell_hooks(node);
  return y;
}

Pair add_norm(
    c10::DispatchKeySet keys, const Tensor& x, const Tensor& residual, const Maybe& weight,
    const Maybe& bias, double eps, bool is_rms, bool wide_sum) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(KERNEL_OP("cuda_recorded_add_norm"), "")
                             .typed<AddNormSchema>();
  const auto call = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.redispatch(
        keys & c10::after_ADInplaceOrView_keyset, x, residual, weight, bias, eps, is_rms, wide_sum);
  };
  refuse_tangents(x, residual, weight, bias);
  if (!torch::autograd::compute_requires_grad(x, residual, weight, bias)) return call();
  const auto node = make_node_for({eps, is_rms, true}, x, weight, bias, residual);
  node->weight = SavedVariable(weight, false);
  const Pair both = call();
  const auto& [y, sum] = both;
  torch::autograd::set_history(y, node);
  torch::autograd::set_history(sum, node);
  node->h = SavedVariable(sum, true);
  tell_hooks(node);
  return both;
}

}  // namespace

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {
  ops.impl("cuda_recorded_norm", &norm);
  ops.impl("cuda_recorded_add_norm", &add_norm);
}
