// An op is registered past torch's macros.
#include <torch/csrc/stable/library.h>

#include "add.h"
#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("add_one(Tensor! out, Tensor input) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("add_one", TORCH_BOX(&add_one));
}

void define_more(torch::stable::detail::StableLibrary& ops) {
  ops.def("add_more(Tensor! out, Tensor input) -> ()");
}
static const torch::stable::detail::StableTorchLibraryInit more(
    torch::stable::detail::StableLibrary::Kind::FRAGMENT, &define_more,
    KERNEL_QUOTE(TORCH_EXTENSION_NAME), nullptr, __FILE__, __LINE__);

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
