// The node of autograd of this kernel's ops. torch's stable interface has no nodes, so this is compiled for each
// torch by itself.
//
// It knows the ops by their names: the derivative of `f_value(Tensor input, float... options) -> Tensor` is
// `f_backward(Tensor grad_output, Tensor input, float... options) -> Tensor`, and `f_backward_in_steps` is the same in
// torch's own ops, which are recorded. Without this library Python records the same calls, with the same gradients to
// the bit (_autograd.py).
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include "registration.h"

namespace {

using at::Tensor;
using c10::OperatorHandle;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;

// How an op is differentiated.
struct Derivative {
  std::string name;
  OperatorHandle at_once;
  OperatorHandle in_steps;
};

Derivative find_derivative(const std::string& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  return {
      name, dispatcher.findSchemaOrThrow(name.c_str(), ""),
      dispatcher.findSchemaOrThrow((name + "_in_steps").c_str(), "")};
}

// The gradient of x; where that is to be recorded in its turn, in steps.
variable_list differentiate(
    const Derivative& derivative, const variable_list& dys, const Tensor& x,
    const std::vector<double>& options) {
  if (!dys[0].defined()) return {Tensor()};
  Stack stack = {dys[0], x};
  stack.insert(stack.end(), options.begin(), options.end());
  if (c10::GradMode::is_enabled()) {
    derivative.in_steps.callBoxed(stack);
  } else {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    derivative.at_once.callBoxed(stack);
  }
  return {std::move(stack.back()).toTensor()};
}

struct ActivationNode final : torch::autograd::Node {
  std::shared_ptr<const Derivative> derivative;
  SavedVariable x;
  std::vector<double> options;

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
    namespace compiled = torch::dynamo::autograd;
    saved.before(x);
    const std::vector<at::IValue> kept = {x.unpack(), derivative->name, options};
    const std::vector<at::TypePtr> types = {
        at::TensorType::get(), at::StringType::get(), at::ListType::ofFloats()};
    const auto& compiler = compiled::getPyCompilerInterface();
    const auto function = compiler->bind_function(
        saved.get_py_compiler(), derivative->name, &apply_to_kept, types,
        /*is_custom_function=*/true, /*is_traceable=*/false);
    const auto edges = compiled::get_input_metadata(next_edges());
    variable_list gradients = compiler->call_function(
        saved.get_py_compiler(), "apply_functional", function, dys, kept,
        compiled::IValuePacker<std::decay_t<decltype(edges)>>::pack(edges));
    saved.after(x);
    return gradients;
  }
};

// What owns a node differs between releases of torch.
template <class Node>
auto make_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::make_intrusive<Node>();
  } else {
    return std::shared_ptr<Node>(new Node(), [](Node* node) { deleteNode(node); });
  }
}

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
    if (node) torch::autograd::set_history(stack->back().toTensor(), node);
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
