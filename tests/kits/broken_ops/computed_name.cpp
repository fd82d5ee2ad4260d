// The name of an op is put together at run time.
#include <torch/csrc/stable/library.h>

#include "add.h"
#include "registration.h"

#include <string>

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out, Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  const std::string name = std::string("add_") + "one";
  ops.impl(name.c_str(), TORCH_BOX(&add_one));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
