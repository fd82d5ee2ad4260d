// Registers the ops. Torch picks the backend by the tensors' device.
#include "torch_binding.h"

#include <torch/csrc/stable/library.h>

#include "registration.h"

// Weights by number: 0 default, 1 bt601, 2 bt709.
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor! out, Tensor image, int weights) -> ()");
  ops.def("img2gray_value(Tensor image, int weights, bool channels_first) -> Tensor");
#if defined(CUDA_KERNEL)
  ops.def("img2gray_by_grid(Tensor! out, Tensor image, int weights) -> ()");
#endif
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  using namespace img2gray;
  ops.impl("img2gray", TORCH_BOX(&fill<&cpu::run>));
  ops.impl("img2gray_value", TORCH_BOX(&value<&cpu::run>));
}

#if defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  using namespace img2gray;
  ops.impl("img2gray", TORCH_BOX(&fill<&cuda::run>));
  ops.impl("img2gray_value", TORCH_BOX(&value<&cuda::run>));
  ops.impl("img2gray_by_grid", TORCH_BOX(&fill<&cuda::run_by_grid>));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
