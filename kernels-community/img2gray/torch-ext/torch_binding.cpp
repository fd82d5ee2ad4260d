// Registers the ops. Torch picks the backend by the tensors' device.
#include "torch_binding.h"

#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor! out, Tensor image, str weights) -> ()");
  ops.def("img2gray_value(Tensor image, str weights, bool channels_first) -> Tensor");
#if defined(CUDA_KERNEL)
  ops.def("img2gray_by_grid(Tensor! out, Tensor image, str weights) -> ()");
#endif
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("img2gray", TORCH_BOX(&img2gray::cpu::convert));
  ops.impl("img2gray_value", TORCH_BOX(&img2gray::gray_value<&img2gray::cpu::convert>));
}

#if defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("img2gray", TORCH_BOX(&img2gray::cuda::convert));
  ops.impl("img2gray_value", TORCH_BOX(&img2gray::gray_value<&img2gray::cuda::convert>));
  ops.impl("img2gray_by_grid", TORCH_BOX(&img2gray::cuda::convert_by_grid));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
