// Finds torch's stream and hands plain memory to the launch.
#include "cuda_img2gray.h"

#include <optional>

#include <cuda_runtime_api.h>

#include <torch/csrc/stable/accelerator.h>

#include "launch.h"

namespace img2gray::cuda {
namespace {

void launch(Form form, const Conversion& conversion, const ImageView& view) {
  if (view.pixels() == 0) return;
  std::optional<torch::stable::accelerator::DeviceGuard> guard;  // costs more than to look
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != conversion.device) {
    guard.emplace(conversion.device);
  }
  void* handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(conversion.device, &handle));
  STD_CUDA_CHECK(launch_convert(
      form, conversion.element, conversion.gray, conversion.image, view, conversion.weights,
      static_cast<cudaStream_t>(handle)));
}

}  // namespace

void run(const Conversion& conversion) {
  launch(Form::kBest, conversion, conversion.view.merged());
}

void run_by_grid(const Conversion& conversion) {
  launch(Form::kGrid, conversion, conversion.view);
}

}  // namespace img2gray::cuda
