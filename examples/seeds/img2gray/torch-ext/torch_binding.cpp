// Registers the op; torch calls the function of the device that the tensors are on.
#include "torch_binding.h"

#include <torch/library.h>

#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor input, Tensor! output) -> ()");
  ops.impl("img2gray", c10::kCPU, &img2gray_cpu);
#if defined(CUDA_KERNEL)
  ops.impl("img2gray", c10::kCUDA, &img2gray_cuda);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
