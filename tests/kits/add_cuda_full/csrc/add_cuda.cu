#include <torch/all.h>

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

namespace {

template <typename Scalar>
__global__ void add_kernel(Scalar* to, const Scalar* from, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i] + Scalar(1);
}

}  // namespace

// A function-local static in a template: GNU-unique, unless the compiler is told otherwise.
template <typename Scalar>
int64_t count_calls() {
  static int64_t calls = 0;
  return ++calls;
}

torch::Tensor add_one(const torch::Tensor& input) {
  TORCH_CHECK(input.is_cuda(), "add_one: input is on ", input.device(), ", expected a GPU");
  const c10::cuda::CUDAGuard guard(input.device());
  torch::Tensor out = torch::empty_like(input);
  const int64_t count = input.numel();
  if (count_calls<float>() > 0 && count == 0) return out;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, input.scalar_type(), "add_one", [&] {
        add_kernel<scalar_t><<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            out.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), count);
      });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
