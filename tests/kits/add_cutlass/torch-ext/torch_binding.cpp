#include <torch/csrc/stable/library.h>

#include "add.h"
#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out, Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one));
}

#if defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one_cuda));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
