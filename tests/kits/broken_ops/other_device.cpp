// The code is registered for a device that the variant is not for.
#include <torch/csrc/stable/library.h>

#include "add.h"
#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out, Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, XPU, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
