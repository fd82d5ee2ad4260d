#include <torch/csrc/stable/library.h>

#include "csrc/step.h"
#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("old_step() -> int");
  ops.def("new_step() -> int");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, ops) {
  ops.impl("old_step", TORCH_BOX(&old_step));
  ops.impl("new_step", TORCH_BOX(&new_step));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
