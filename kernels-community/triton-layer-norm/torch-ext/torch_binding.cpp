// Registers the compiled ops. What torch.compile sees is registered from Python: _registered.py. The recorded
// ones get a node of autograd where a library for the torch that runs is loaded: ../csrc/node/norm_node.cpp.
#include <torch/csrc/stable/library.h>

#include "../csrc/cuda/norm_ops.h"
#include "registration.h"

#define NORM "(Tensor x, Tensor? weight, Tensor? bias, float eps, bool is_rms) -> Tensor"
#define ADD_NORM                                                                       \
  "(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps, bool is_rms, " \
  "bool wide_sum) -> (Tensor, Tensor)"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("cuda_norm" NORM);
  ops.def("cuda_recorded_norm" NORM);
  ops.def("cuda_add_norm" ADD_NORM);
  ops.def("cuda_recorded_add_norm" ADD_NORM);
  ops.def(
      "cuda_norm_backward(Tensor h, Tensor? weight, Tensor dy, Tensor? dsum, float eps, "
      "bool is_rms, bool wants_dweight, bool wants_dbias) -> (Tensor, Tensor?, Tensor?)");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  using namespace layer_norm;
  ops.impl("cuda_norm", TORCH_BOX(&cuda::norm));
  ops.impl("cuda_recorded_norm", TORCH_BOX(&cuda::norm));
  ops.impl("cuda_add_norm", TORCH_BOX(&cuda::add_norm));
  ops.impl("cuda_recorded_add_norm", TORCH_BOX(&cuda::add_norm));
  ops.impl("cuda_norm_backward", TORCH_BOX(&cuda::norm_backward));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
