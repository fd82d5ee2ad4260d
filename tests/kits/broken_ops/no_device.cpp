// size_limit takes no tensor, so there is no device to pick its code by.
#include <torch/csrc/stable/library.h>

#include "add.h"
#include "registration.h"

int64_t size_limit() { return 7; }

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out, Tensor input) -> ()");
  ops.def("size_limit() -> int");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one));
  ops.impl("size_limit", TORCH_BOX(&size_limit));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
