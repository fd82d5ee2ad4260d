// What a node of autograd that is written out cannot spell the same way for every torch. kernel-builder
// puts this header on the include path, for sources that use torch's full interface: those of a
// component with `per-torch = true`, and of a project for one torch. Nothing else includes it.
//
//     #include "autograd_node.h"
//
//     struct ScaleNode final : torch::autograd::Node { ... };
//
//     const auto node = kernel_builder::make_node<ScaleNode>();
//     node->set_next_edges(torch::autograd::collect_next_edges(x));
//     torch::autograd::set_history(y, node);
//     kernel_builder::tell_hooks(node);
//
// What is said of releases is read from the headers of torch 2.10 to 2.14: torch/csrc/autograd/function.h,
// node.h, which a part of it is in since 2.14, and torch/csrc/dynamo/compiled_autograd.h.
// docs/guide/per-torch.md has a whole node, and says when torch::autograd::Function is enough.
#pragma once

#if defined(TORCH_STABLE_ONLY) || defined(TORCH_TARGET_VERSION)
#error "autograd_node.h is for torch's full interface: list its source in components with per-torch = true alone"
#endif

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/headeronly/version.h>

namespace kernel_builder {

// Makes an empty node, and returns what owns it as torch's set_history wants it: a std::shared_ptr
// up to torch 2.12, whose nodes are freed by deleteNode, without a deep stack for a long graph; a
// c10::intrusive_ptr since 2.13.
template <class Node>
auto make_node() {
  static_assert(std::is_base_of_v<torch::autograd::Node, Node>);
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::make_intrusive<Node>();
  } else {
    return std::shared_ptr<Node>(new Node(), [](Node* node) { deleteNode(node); });
  }
}

// Tells those who registered torch.autograd.graph.node_creation_hook, which torch has since 2.14, of a
// new node. To be called once for each, last: they see its edges, what it keeps, and its outputs.
template <class Owner>
void tell_hooks([[maybe_unused]] const Owner& node) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  torch::autograd::fire_node_creation_hooks(node);
#endif
}

// Whether a gradient is more than its values: many of them, which vmap (and is_grads_batched) holds in one
// tensor, or with a tangent of forward mode. torch knows what each of its own ops makes of that. An op that
// is called below autograd, with at::AutoDispatchBelowADInplaceOrView, drops the tangent and may refuse the
// rest: a backward is for torch's own ops then, as it is where c10::GradMode::is_enabled().
inline bool holds_more(const at::Tensor& gradient) {
  return torch::autograd::isFwGradDefined(gradient) ||
         gradient.key_set().has_any(
             c10::DispatchKeySet({c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched}));
}

// Puts a node into a backward that is compiled as one call of `function`, and returns the gradients that
// stand for its results. That is what Node::apply_with_saved is to do; it is called while the graph is
// written down, and what the node keeps is then tensors of the compiler:
//
//     saved.before(x);   // of each SavedVariable
//     auto gradients = kernel_builder::call_compiled(*this, saved, dys, &differentiate, {x.unpack(), factor});
//     saved.after(x);
//
// function: makes gradients of the gradients that come in and of `kept`. It is called whenever the compiled
//     backward runs, when the node is long gone; so it may be a function or a closure of values, and gets
//     from `kept` alone what differs from call to call. A gradient, and a tensor in `kept`, may be undefined.
// kept: tensors, numbers, texts, or lists of such. Node::compiled_args has to collect all that is not a
//     tensor: a graph with equal ones is used again.
inline torch::autograd::variable_list call_compiled(
    const torch::autograd::Node& node, torch::autograd::SwapSavedVariables& saved,
    const torch::autograd::variable_list& dys, torch::autograd::functional_apply_t function,
    const std::vector<at::IValue>& kept) {
  namespace compiled = torch::dynamo::autograd;
  std::vector<at::TypePtr> types;
  types.reserve(kept.size());
  for (const at::IValue& value : kept) {  // an undefined tensor would say that it is None
    types.push_back(value.isTensor() ? at::TensorType::get() : value.type());
  }
  const auto& compiler = compiled::getPyCompilerInterface();
  const auto bound = compiler->bind_function(
      saved.get_py_compiler(), node.name(), std::move(function), std::move(types),
      /*is_custom_function=*/true, /*is_traceable=*/false);
  const auto edges = compiled::get_input_metadata(node.next_edges());
  return compiler->call_function(
      saved.get_py_compiler(), "apply_functional", bound, dys, kept,
      compiled::IValuePacker<std::decay_t<decltype(edges)>>::pack(edges));
}

}  // namespace kernel_builder
