// The node of autograd of this kernel's ops. torch's stable interface has no nodes, so this is compiled for each
// torch by itself.
//
// It knows the ops by their names: the derivative of `f_value(Tensor input, float... options) -> Tensor` is
// `f_backward(Tensor grad_output, Tensor input, float... options) -> Tensor`. Without this library Python records
// the same calls, with the same gradients to the bit (_autograd.py).
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include "autograd_node.h"
#include "registration.h"

namespace {

using at::Tensor;
using c10::OperatorHandle;
using kernel_builder::holds_more;
using kernel_builder::make_node;
using kernel_builder::tell_hooks;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;

using Options = std::vector<double>;

constexpr double kPi = 3.14159265358979323846;

// The backward in torch's own ops, so that it can be recorded in its turn: the same steps as in gradients.py.
struct Tangent {
  Tensor value;
  Tensor slope;
};

// x sigmoid(z), where dz is the slope of z times x.
Tangent times_sigmoid(const Tensor& x, const Tensor& z, const Tensor& dz) {
  const Tensor value = z.sigmoid();
  return {x * value, value * (1 + dz * (-z).sigmoid())};
}

Tangent find_tangent(const std::string& kind, const Tensor& x, const Options& options) {
  if (kind == "fatrelu") {
    const Tensor is_below = x.le(options.at(0));
    return {x.masked_fill(is_below, 0), is_below.logical_not().to(x.scalar_type())};
  }
  const Tensor near = x.clamp(-200, 200);  // beyond it, the slopes are those of the limits
  if (kind == "silu") return times_sigmoid(x, near, near);
  if (kind == "gelu_quick") {
    const Tensor z = 1.702 * near;
    return times_sigmoid(x, z, z);
  }
  if (kind == "gelu_tanh") {
    const double scale = 2 * std::sqrt(2 / kPi);
    const Tensor square = near * near;
    return times_sigmoid(
        x, scale * near * (1 + 0.044715 * square), scale * near * (1 + 3 * 0.044715 * square));
  }
  TORCH_INTERNAL_ASSERT(kind == "gelu", kind);
  const Tensor probability = (-near / std::sqrt(2.0)).erfc() / 2;
  const Tensor density = (near * near / -2).exp() / std::sqrt(2 * kPi);
  return {x * probability, probability + near * density};
}

Tensor differentiate_in_steps(
    const std::string& op, const Tensor& dy, const Tensor& x, const Options& options) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor grad = dy.to(wide);
  const Tensor values = x.to(wide);
  const bool swapped = op == "mul_and_silu";
  const size_t end_of_kind = op.find("_and_mul");
  if (!swapped && end_of_kind == std::string::npos) {
    return (grad * find_tangent(op, values, options).slope).to(x.scalar_type());
  }
  const std::vector<Tensor> halves = values.chunk(2, -1);
  const Tensor& gate = halves[swapped ? 1 : 0];
  const Tensor& factor = halves[swapped ? 0 : 1];
  const Tangent tangent = find_tangent(swapped ? "silu" : op.substr(0, end_of_kind), gate, options);
  const Tensor of_gate = grad * factor * tangent.slope;
  const Tensor of_factor = grad * tangent.value;
  const Tensor both = swapped ? at::cat({of_factor, of_gate}, -1) : at::cat({of_gate, of_factor}, -1);
  return both.to(x.scalar_type());
}

// How an op is differentiated.
struct Derivative {
  std::string name;  // of the backward, in full
  std::string op;    // without namespace and ending
  OperatorHandle at_once;
};

Derivative find_derivative(const std::string& name) {
  const size_t begin = name.find("::") + 2;
  return {
      name, name.substr(begin, name.rfind("_backward") - begin),
      c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "")};
}

variable_list differentiate(
    const Derivative& derivative, const variable_list& dys, const Tensor& x,
    const Options& options) {
  const Tensor& dy = dys[0];
  if (!dy.defined()) return {Tensor()};
  if (c10::GradMode::is_enabled() || holds_more(dy)) {
    return {differentiate_in_steps(derivative.op, dy, x, options)};
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Stack stack = {dy, x};
  stack.insert(stack.end(), options.begin(), options.end());
  derivative.at_once.callBoxed(stack);
  return {std::move(stack.back()).toTensor()};
}

struct ActivationNode final : torch::autograd::Node {
  std::shared_ptr<const Derivative> derivative;
  SavedVariable x;
  Options options;

  variable_list apply(variable_list&& dys) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return differentiate(*derivative, dys, x.unpack(), options);
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    x.reset_data();
  }

  std::string name() const override { return derivative->name; }

  // The rest is for a backward that is compiled: it looks at what a node keeps, and is given a function of that.
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override {
    args.collect(x, false);
    args.collect(derivative->name);
    args.collect(options);
  }

  static variable_list apply_to_kept(
      const variable_list& dys, const std::vector<at::IValue>& kept) {
    return differentiate(
        find_derivative(kept[1].toStringRef()), dys, kept[0].toTensor(), kept[2].toDoubleVector());
  }

  variable_list apply_with_saved(
      const variable_list& dys, torch::autograd::SwapSavedVariables& saved) override {
    saved.before(x);
    variable_list gradients = kernel_builder::call_compiled(
        *this, saved, dys, &apply_to_kept, {x.unpack(), derivative->name, options});
    saved.after(x);
    return gradients;
  }
};

// Records the calls of one op, below which it then calls the op itself.
class Recorder final : public c10::OperatorKernel {
 public:
  void operator()(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
    const Tensor x = arguments[0].toTensor();
    TORCH_CHECK_NOT_IMPLEMENTED(
        !torch::autograd::isFwGradDefined(x), op.schema().name(), ": no forward-mode derivative");
    decltype(make_node<ActivationNode>()) node;
    if (torch::autograd::compute_requires_grad(x)) {
      node = make_node<ActivationNode>();
      node->set_next_edges(torch::autograd::collect_next_edges(x));
      node->derivative = derivative_of(op);
      node->x = SavedVariable(x, false);
      for (const at::IValue& option : arguments.slice(1)) {
        node->options.push_back(option.toDouble());
      }
    }
    {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    if (!node) return;
    torch::autograd::set_history(stack->back().toTensor(), node);
    tell_hooks(node);
  }

 private:
  // Looked up at the first call: by then the main library has defined all ops.
  const std::shared_ptr<const Derivative>& derivative_of(const OperatorHandle& op) {
    std::call_once(is_looked_up_, [&] {
      const std::string& name = op.schema().name();
      derivative_ = std::make_shared<const Derivative>(
          find_derivative(name.substr(0, name.rfind("_value")) + "_backward"));
    });
    return derivative_;
  }

  std::once_flag is_looked_up_;
  std::shared_ptr<const Derivative> derivative_;
};

torch::CppFunction recorded() {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Recorder>());
}

}  // namespace

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, AutogradCUDA, ops) {
  ops.impl("gelu_value", recorded());
  ops.impl("gelu_quick_value", recorded());
  ops.impl("gelu_tanh_value", recorded());
  ops.impl("silu_value", recorded());

  ops.impl("silu_and_mul_value", recorded());
  ops.impl("mul_and_silu_value", recorded());
  ops.impl("gelu_and_mul_value", recorded());
  ops.impl("gelu_tanh_and_mul_value", recorded());
  ops.impl("fatrelu_and_mul_value", recorded());
}
