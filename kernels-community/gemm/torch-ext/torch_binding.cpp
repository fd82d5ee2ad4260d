// Registers the ops. `nt` says that operands are row by K, `tile` forces a way to cut (-1: choose).
#include "torch_binding.h"

#include <torch/csrc/stable/library.h>

#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gemm(Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, bool nt) -> Tensor");
  ops.def(
      "gemm_out(Tensor! c, Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, bool nt, int tile)"
      " -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("gemm", TORCH_BOX(&gemm::gemm_cpu));
  ops.impl("gemm_out", TORCH_BOX(&gemm::gemm_out_cpu));
}

#if defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("gemm", TORCH_BOX(&gemm::gemm_cuda));
  ops.impl("gemm_out", TORCH_BOX(&gemm::gemm_out_cuda));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
