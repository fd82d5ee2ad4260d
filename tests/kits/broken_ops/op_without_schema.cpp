// add_two gets code and was never defined.
#include <torch/csrc/stable/library.h>

#include "add.h"
#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out, Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one));
  ops.impl("add_two", TORCH_BOX(&add_one));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
